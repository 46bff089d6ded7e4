// What a shard is, without a network: the true weights w of its segments, the
// weights v̂ that workers hold, the optimizer, and the error feedback of the
// downlink (proto/README.md, "A step").
//
//   RV_ASSIGN_OR_RETURN(auto core, ShardCore::Create(plan, shard));
//   core->SubmitPush(rank, incarnation, step, bytes, commit);  // of each rank
//   if (core->Ready()) {
//     RV_ASSIGN_OR_RETURN(auto update, core->MakeUpdate(schedule_seq));
//   }
//
// A step's update depends on the set of pushes only, not on their order. No
// I/O. Thread-compatible: one thread owns it.

#ifndef RIVULET_SERVER_SHARD_CORE_H_
#define RIVULET_SERVER_SHARD_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/daemon/run_plan.h"
#include "compression/difference_compressor.h"
#include "compression/frame.h"
#include "models/checkpoint/tensor_file.h"
#include "models/optim/sgd.h"
#include "proto/controller.pb.h"
#include "proto/exchange.pb.h"
#include "server/aggregator.h"

namespace rivulet {

// One step's answer; the same for every worker. Immutable once made.
struct ShardUpdate {
  int64_t step = 0;
  std::string bytes;  // frames; empty when nothing changed
  v1::UpdateEnd end;
};

enum class PushResult {
  kAccepted,  // counts in its step
  kRepeated,  // was here before; nothing changed
};

class ShardCore {
 public:
  // Shard `shard` of the plan's partition with the initial weights, at version
  // 0, expecting ranks 0 .. workers - 1 of incarnation 0.
  static absl::StatusOr<std::unique_ptr<ShardCore>> Create(
      std::shared_ptr<const RunPlan> plan, int shard);

  // Who pushes from now on. InvalidArgument unless the ranks are exactly those
  // of the config, in order. Only between steps (FailedPrecondition).
  absl::Status SetView(const v1::View& view);

  // Fences a rank: OK raises what is known of its incarnation; ABORTED when a
  // larger one is known; OutOfRange for a rank beyond the view.
  absl::Status Admit(int rank, uint64_t incarnation);

  // One rank's committed push of `step`. Everything is checked before anything
  // changes: DataLoss for a wrong checksum, what DecodeFrames returns for a bad
  // frame, InvalidArgument for a segment that comes twice or replaces values,
  // and for a number of samples that cannot be; FailedPrecondition for a step
  // beyond the next, and for another push under the name of one that is here;
  // Aborted for a superseded incarnation. Data of a voided push is ignored.
  absl::StatusOr<PushResult> SubmitPush(int rank, uint64_t incarnation,
                                        int64_t step, absl::string_view bytes,
                                        const v1::Commit& commit);

  // Pushes of the current step that are committed, voided ones included.
  size_t num_committed() const { return num_committed_; }
  // The ranks whose push of the current step has not come, in order.
  std::vector<int> Awaited() const;
  // Whether every rank of the view has committed the current step.
  bool Ready() const { return num_committed_ == pushes_.size(); }

  // Call when Ready: adds the pushes, steps the optimizer, makes the update and
  // advances the version. FailedPrecondition, naming step and tensor, when the
  // weights are no longer finite; the core is of no more use then.
  absl::StatusOr<std::shared_ptr<const ShardUpdate>> MakeUpdate(
      uint64_t schedule_seq);

  // The update of `step` if it is kept (the last one is), else null. Answers
  // repeated pushes.
  std::shared_ptr<const ShardUpdate> FindUpdate(int64_t step) const;

  // Updates made so far = the step whose pushes it collects.
  int64_t version() const { return version_; }
  int shard() const { return shard_; }
  const RunPlan& plan() const { return *plan_; }
  absl::Span<const Segment> segments() const {
    return plan_->partition().OfShard(shard_);
  }
  // Bytes that one push may have (proto/README.md, "Limits").
  int64_t max_push_bytes() const;

  // w and v̂ of one segment.
  absl::Span<const float> weights(int local) const;
  absl::Span<const float> view(int local) const;

  // The state before step version(), between steps. Tensors are named
  // "w.<parameter>@<begin>", "v." for v̂ and "m." for momentum.
  TensorFile Save() const;
  // Takes a state that Save made. FailedPrecondition names what does not belong
  // to this shard; nothing changes then.
  absl::Status Load(const TensorFile& file);

 private:
  struct PendingPush {
    uint64_t incarnation = 0;  // the rank's newest
    bool committed = false;
    v1::Commit commit;
    std::vector<SegmentUpdate> updates;
  };

  ShardCore(std::shared_ptr<const RunPlan> plan, int shard);

  absl::StatusOr<PushResult> Recognize(int rank, int64_t step,
                                       const v1::Commit& commit) const;
  absl::StatusOr<std::vector<SegmentUpdate>> Decode(
      int rank, int64_t step, absl::string_view bytes,
      const v1::Commit& commit) const;
  // Adds this step's pushes and moves w; fills who counted.
  void Optimize(v1::UpdateEnd* end);
  absl::Status EncodeChange(std::string* bytes);
  absl::Span<float> SegmentOf(std::vector<float>& values, int local) const;

  const std::shared_ptr<const RunPlan> plan_;
  const int shard_;
  std::vector<int64_t> sizes_;    // of segments, in elements
  std::vector<int64_t> offsets_;  // of segments in the flat buffers
  std::vector<float> weights_;    // w, segments laid end to end
  std::vector<float> view_;       // v̂
  Sgd optimizer_;
  Aggregator aggregator_;
  std::vector<DifferenceCompressor> compressors_;  // one per segment

  int64_t version_ = 0;
  std::vector<PendingPush> pushes_;  // by rank
  size_t num_committed_ = 0;
  std::shared_ptr<const ShardUpdate> last_update_;
  std::vector<v1::Commit> last_commits_;  // by rank, of step version_ - 1
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SHARD_CORE_H_
