// A worker's training loop: batch, forward, backward with pushes as gradients
// become ready, the shards' updates, and what happens at step boundaries
// (proto/README.md, "A step" to "End of a run").
//
//   Trainer trainer(parts, options);
//   absl::Status status = trainer.Run();
//
// Knows neither sockets nor files: shards and controller are behind interfaces,
// checkpoints behind a function. Thread-compatible; one thread runs it.

#ifndef RIVULET_WORKER_TRAINER_H_
#define RIVULET_WORKER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/daemon/run_plan.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/model.h"
#include "proto/controller.pb.h"
#include "worker/evaluator.h"
#include "worker/push_pipeline.h"
#include "worker/run_session.h"
#include "worker/shard_stream.h"
#include "worker/worker_checkpoint.h"

namespace rivulet {

class Trainer {
 public:
  // What it works with; all borrowed, but for the plan.
  struct Parts {
    std::shared_ptr<const RunPlan> plan;
    Model* model = nullptr;  // at the state before options.first_step
    BatchLoader* train = nullptr;
    const Dataset* test = nullptr;
    std::vector<ShardStream*> shards;  // in order
    PushPipeline* pipeline = nullptr;
    RunSession* session = nullptr;
    // Keeps the state before step `step`.
    std::function<absl::Status(int64_t step, const VoidCounts& voided)> save;
  };
  struct Options {
    int rank = 0;
    int64_t first_step = 0;
    uint64_t schedule_seq = 0;  // newest entry of Start
    VoidCounts voided;
    // Called before each step's commit; tests delay a worker here. May be null.
    std::function<void(int64_t step)> before_commit;
  };

  // A worker whose steps are voided this often in a row gives up.
  static constexpr int64_t kMaxVoidedInARow = 50;

  Trainer(Parts parts, Options options);

  // Trains to the last step or a StopMark, and reports Finished to the session.
  // Errors: a stream's end (naming the shard), a bad update, the data set's, a
  // checkpoint that cannot be saved; FailedPrecondition after kMaxVoidedInARow
  // voided steps, naming step and layer.
  absl::Status Run();

 private:
  // v1::StepTimes, added up.
  struct Times {
    absl::Duration total;
    absl::Duration compute;
    absl::Duration compress;
    absl::Duration wait;
    absl::Duration apply;
    absl::Duration data;
  };

  absl::Status TrainStep(int64_t step);
  // Computes and pushes the gradients of `batch`. An error voids the step.
  absl::Status ComputeGradients(const Batch& batch);
  absl::Status BackwardStreaming();
  absl::Status BackwardClipped(double max_norm);
  absl::Status Push(int tensor, float scale);
  absl::Status Conclude(int64_t step, const Batch& batch,
                        const absl::Status& pushed);
  absl::Status ApplyUpdates(int64_t step);
  absl::Status ApplyUpdate(size_t shard, const ReceivedUpdate& update);
  // Internal unless the update counts this worker's push exactly when it was
  // not voided: the residual relies on it.
  absl::Status CheckCounted(const v1::UpdateEnd& end) const;
  absl::Status AfterStep(int64_t step);
  absl::Status ActOnSchedule(int64_t step);
  absl::Status SaveCheckpoint(int64_t step);
  absl::Status Evaluate(int64_t step);
  void SendReport();
  void SendFinished();
  v1::Traffic TrafficNow() const;

  const Parts parts_;
  const Options options_;
  const RunPlan& plan_;
  const int workers_;
  Evaluator evaluator_;

  uint64_t schedule_seq_;       // acted on
  uint64_t announced_seq_ = 0;  // in shard 0's newest update
  bool stopped_ = false;
  int64_t steps_done_;
  VoidCounts voided_;
  // Of the step under way.
  LossResult step_loss_;
  bool step_voided_ = false;
  int64_t step_samples_ = 0;

  int64_t reported_step_ = -1;  // of the last report
  // Sums since the last report.
  LossResult loss_;
  Times times_;
  absl::Time report_at_;
  // Sums of this process.
  absl::Duration train_time_;
  int64_t samples_ = 0;
  std::optional<uint64_t> steady_wire_base_;  // uplink when the warm-up ended
  int64_t steady_steps_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_TRAINER_H_
