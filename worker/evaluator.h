// Evaluation: a whole data set by one process, or a worker's part of the test
// set with normalization statistics that all workers share.

#ifndef RIVULET_WORKER_EVALUATOR_H_
#define RIVULET_WORKER_EVALUATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/run_plan.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/model.h"
#include "worker/shard_stream.h"

namespace rivulet {

inline constexpr int64_t kEvaluationBatch = 256;

// Sums over images [begin, end) of `dataset`, which go through
// Model::Evaluate `batch` at a time. Errors are the data set's own.
absl::StatusOr<LossResult> EvaluateDataset(Model& model, const Dataset& dataset,
                                           int64_t begin, int64_t end,
                                           int64_t batch = kEvaluationBatch);

// All buffers of `model` end to end, in manifest order, and back.
std::vector<float> GetBuffers(Model& model);
void SetBuffers(Model& model, const std::vector<float>& values);

// One worker's share of the evaluations of a run. Thread-compatible; borrows
// everything but the plan.
class Evaluator {
 public:
  // `statistics_shard` is the stream to shard 0.
  Evaluator(std::shared_ptr<const RunPlan> plan, int rank, Model* model,
            const Dataset* test, const BatchLoader* train,
            ShardStream* statistics_shard);

  // Evaluates rank's part of the test set after `step` on v̂, with the workers'
  // mean running statistics, which are not written back. Blocks until every
  // worker has sent its own.
  absl::StatusOr<LossResult> EvaluateAfter(int64_t step);

  // As EvaluateAfter for the last step: first estimates the statistics anew on
  // the final weights, over this rank's slices of train.statistics_batches
  // batches, and leaves the mean in the model.
  absl::StatusOr<LossResult> EvaluateFinal(int64_t step);

 private:
  // Replaces the model's buffers by the mean over all workers.
  absl::Status ShareStatistics(int64_t step);
  absl::Status EstimateStatistics();
  absl::StatusOr<LossResult> EvaluateShare();

  const std::shared_ptr<const RunPlan> plan_;
  const int rank_;
  Model* const model_;
  const Dataset* const test_;
  const BatchLoader* const train_;
  ShardStream* const statistics_shard_;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_EVALUATOR_H_
