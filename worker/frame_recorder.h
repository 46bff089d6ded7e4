// Keeps the frames of some steps as files, for `rivulet inspect`: what this
// worker sent to a shard, and what it got from it.
//
//   RUN/frames/step-0000000100/worker-0-shard-1-push.frames
//   RUN/frames/step-0000000100/worker-0-shard-1-update.frames
//
// A file that cannot be written is a warning, once, and no more is kept:
// training does not depend on it. Voided steps are not kept.
//
// Thread-safe.

#ifndef RIVULET_WORKER_FRAME_RECORDER_H_
#define RIVULET_WORKER_FRAME_RECORDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/sync.h"
#include "worker/shard_stream.h"

namespace rivulet {

// A stream that another one does the work of.
class FrameRecorder final : public ShardStream {
 public:
  struct Options {
    std::string dir;  // made where it is missing
    int rank = 0;
    int64_t every = 1;  // steps, >= 1
  };
  // `stream` is borrowed.
  FrameRecorder(ShardStream* stream, Options options);

  int shard() const override;
  void SendPush(int64_t step, std::string frames) override;
  void SendCommit(int64_t step, std::string frames,
                  const v1::Commit& commit) override;
  void SendBoundary(int64_t step, uint64_t schedule_seq) override;
  void SendStatistics(int64_t step, absl::Span<const float> values) override;
  absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t step) override;
  absl::StatusOr<std::vector<float>> WaitForStatistics(int64_t step) override;
  void Cancel(const absl::Status& reason) override;
  const ByteCounter& sent() const override;
  const ByteCounter& received() const override;

 private:
  bool Keeps(int64_t step) const { return step % options_.every == 0; }
  void Write(int64_t step, const char* what, const std::string& frames)
      ABSL_LOCKS_EXCLUDED(mu_);

  ShardStream* const stream_;
  const Options options_;
  Mutex mu_;
  std::string push_ ABSL_GUARDED_BY(mu_);  // of the step under way
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_FRAME_RECORDER_H_
