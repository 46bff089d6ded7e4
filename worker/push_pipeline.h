// One step's gradients on their way to the shards: weight decay, compression
// (with momentum correction and error feedback), frames, and the commit that
// closes each shard's push.
//
//   pipeline->BeginStep(step);
//   model.Backward([&](int i) {
//     status.Update(pipeline->OnGradient(i, &model.gradient_buffer(i), 1,
//                                        model.parameter(i)));
//   });
//   status.ok() ? pipeline->Commit(samples, schedule_seq)
//               : pipeline->Void(schedule_seq);
//
// A tensor is compressed on the calling thread as soon as it is ready; sending
// goes on meanwhile. A frame leaves when a shard's part has reached
// compression.bucket_bytes. Thread-compatible.

#ifndef RIVULET_WORKER_PUSH_PIPELINE_H_
#define RIVULET_WORKER_PUSH_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/daemon/run_plan.h"
#include "compression/compressed_tensor.h"
#include "compression/frame.h"
#include "compression/gradient_compressor.h"
#include "worker/shard_stream.h"

namespace rivulet {

class PushPipeline {
 public:
  struct Options {
    int rank = 0;
    int threads = 1;  // of the sweeps over long tensors
  };
  // `shards` are borrowed, one for each shard in order.
  static absl::StatusOr<std::unique_ptr<PushPipeline>> Create(
      std::shared_ptr<const RunPlan> plan, const Options& options,
      std::vector<ShardStream*> shards);

  // Each BeginStep is followed by one Commit or Void.
  void BeginStep(int64_t step);

  // Compresses scale * gradient + weight decay * parameter, all of the size of
  // parameter `tensor`, and sends what is full. Each tensor at most once a
  // step. The gradient's memory is borrowed until Commit or Void, which leave
  // any contents in it, and Commit perhaps other memory of its size.
  // InvalidArgument naming the tensor and the step when a value is not finite;
  // only Void may follow then.
  absl::Status OnGradient(int tensor, AlignedBuffer<float>* gradient,
                          float scale, absl::Span<const float> parameter);

  // Sends what is left and the commits, and makes the step's compression state
  // final. With 0 samples nothing may have been given to OnGradient.
  void Commit(int64_t samples, uint64_t schedule_seq);
  // Sends voided commits; momentum, residuals and thresholds are bit for bit as
  // before BeginStep.
  void Void(uint64_t schedule_seq);

  // Time spent in OnGradient since the last call of this.
  absl::Duration TakeCompressTime();

  // State of parameter `tensor`, between steps; null with policy none, which
  // keeps no state in the worker.
  GradientCompressor* compressor(int tensor);

 private:
  // One shard's push under way.
  struct Lane {
    ShardStream* stream = nullptr;
    explicit Lane(const SegmentTable* table) : encoder(table) {}
    FrameEncoder encoder;
    uint32_t crc32c = 0;
  };

  PushPipeline(std::shared_ptr<const RunPlan> plan, const Options& options,
               std::vector<ShardStream*> shards);

  absl::Status Compress(int tensor, const GradientInput& input);
  void Encode(int tensor);
  std::string TakeFrame(Lane* lane);
  void SendCommits(const v1::Commit& commit);

  const std::shared_ptr<const RunPlan> plan_;
  const Options options_;
  std::vector<std::unique_ptr<GradientCompressor>> compressors_;
  std::vector<Lane> lanes_;   // by shard
  std::vector<int> pending_;  // tensors whose compressor has a pending step
  bool in_step_ = false;
  int64_t step_ = 0;
  CompressedTensor compressed_;  // scratch
  absl::Duration compress_time_;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_PUSH_PIPELINE_H_
