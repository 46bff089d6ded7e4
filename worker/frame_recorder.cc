#include "worker/frame_recorder.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/daemon/run_folder.h"
#include "models/checkpoint/atomic_file.h"

namespace rivulet {

FrameRecorder::FrameRecorder(ShardStream* stream, Options options)
    : stream_(stream), options_(std::move(options)) {
  RV_CHECK_GE(options_.every, 1);
}

int FrameRecorder::shard() const { return stream_->shard(); }

void FrameRecorder::SendPush(int64_t step, std::string frames) {
  if (Keeps(step)) {
    MutexLock lock(&mu_);
    push_ += frames;
  }
  stream_->SendPush(step, std::move(frames));
}

void FrameRecorder::SendCommit(int64_t step, std::string frames,
                               const v1::Commit& commit) {
  std::string push;
  if (Keeps(step)) {
    MutexLock lock(&mu_);
    push = std::exchange(push_, {}) + frames;
  }
  stream_->SendCommit(step, std::move(frames), commit);
  if (Keeps(step) && !commit.voided()) Write(step, "push", push);
}

void FrameRecorder::SendBoundary(int64_t step, uint64_t schedule_seq) {
  stream_->SendBoundary(step, schedule_seq);
}

void FrameRecorder::SendStatistics(int64_t step,
                                   absl::Span<const float> values) {
  stream_->SendStatistics(step, values);
}

absl::StatusOr<ReceivedUpdate> FrameRecorder::WaitForUpdate(int64_t step) {
  RV_ASSIGN_OR_RETURN(ReceivedUpdate update, stream_->WaitForUpdate(step));
  if (Keeps(step)) Write(step, "update", update.bytes);
  return update;
}

absl::StatusOr<std::vector<float>> FrameRecorder::WaitForStatistics(
    int64_t step) {
  return stream_->WaitForStatistics(step);
}

void FrameRecorder::Cancel(const absl::Status& reason) {
  stream_->Cancel(reason);
}

const ByteCounter& FrameRecorder::sent() const { return stream_->sent(); }

const ByteCounter& FrameRecorder::received() const {
  return stream_->received();
}

void FrameRecorder::Write(int64_t step, const char* what,
                          const std::string& frames) {
  {
    MutexLock lock(&mu_);
    if (failed_) return;
  }
  const std::string folder =
      absl::StrFormat("%s/step-%010d", options_.dir, step);
  absl::Status status = MakeFolders(folder);
  if (status.ok()) {
    status = WriteFileAtomically(
        absl::StrCat(folder, "/worker-", options_.rank, "-shard-", shard(), "-",
                     what, ".frames"),
        frames);
  }
  if (status.ok()) return;
  spdlog::warn("frames are no longer kept: {}", std::string(status.message()));
  MutexLock lock(&mu_);
  failed_ = true;
}

}  // namespace rivulet
