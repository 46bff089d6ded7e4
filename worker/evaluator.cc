#include "worker/evaluator.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace rivulet {

absl::StatusOr<LossResult> EvaluateDataset(Model& model, const Dataset& dataset,
                                           int64_t begin, int64_t end,
                                           int64_t batch) {
  RV_CHECK_GE(batch, 1);
  LossResult total;
  for (int64_t first = begin; first < end; first += batch) {
    RV_ASSIGN_OR_RETURN(
        const Batch part,
        ReadInOrder(dataset, first, std::min(first + batch, end)));
    const LossResult result = model.Evaluate(part.images, part.labels);
    total.loss_sum += result.loss_sum;
    total.correct += result.correct;
    total.samples += result.samples;
  }
  return total;
}

std::vector<float> GetBuffers(Model& model) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(model.manifest().num_buffer_elements()));
  const int count = static_cast<int>(model.manifest().buffers.size());
  for (int i = 0; i < count; ++i) {
    const absl::Span<const float> buffer = model.buffer(i);
    values.insert(values.end(), buffer.begin(), buffer.end());
  }
  return values;
}

void SetBuffers(Model& model, const std::vector<float>& values) {
  const int count = static_cast<int>(model.manifest().buffers.size());
  size_t at = 0;
  for (int i = 0; i < count; ++i) {
    const absl::Span<float> buffer = model.buffer(i);
    RV_CHECK_LE(at + buffer.size(), values.size());
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), buffer.size(),
                buffer.begin());
    at += buffer.size();
  }
  RV_CHECK_EQ(at, values.size());
}

Evaluator::Evaluator(std::shared_ptr<const RunPlan> plan, int rank,
                     Model* model, const Dataset* test,
                     const BatchLoader* train, ShardStream* statistics_shard)
    : plan_(std::move(plan)),
      rank_(rank),
      model_(model),
      test_(test),
      train_(train),
      statistics_shard_(statistics_shard) {}

absl::StatusOr<LossResult> Evaluator::EvaluateAfter(int64_t step) {
  const std::vector<float> own = GetBuffers(*model_);
  RV_RETURN_IF_ERROR(ShareStatistics(step));
  RV_ASSIGN_OR_RETURN(const LossResult result, EvaluateShare());
  SetBuffers(*model_, own);
  return result;
}

absl::StatusOr<LossResult> Evaluator::EvaluateFinal(int64_t step) {
  RV_RETURN_IF_ERROR(EstimateStatistics());
  RV_RETURN_IF_ERROR(ShareStatistics(step));
  return EvaluateShare();
}

absl::Status Evaluator::ShareStatistics(int64_t step) {
  if (model_->manifest().num_buffer_elements() == 0) return absl::OkStatus();
  statistics_shard_->SendStatistics(step, GetBuffers(*model_));
  RV_ASSIGN_OR_RETURN(const std::vector<float> mean,
                      statistics_shard_->WaitForStatistics(step));
  SetBuffers(*model_, mean);
  return absl::OkStatus();
}

// Slices rather than whole batches of its own: a worker's normalization has
// seen slices of this size all along.
absl::Status Evaluator::EstimateStatistics() {
  const int64_t batches = plan_->config().train.statistics_batches;
  if (batches == 0 || model_->manifest().num_buffer_elements() == 0) {
    return absl::OkStatus();
  }
  const int workers = static_cast<int>(plan_->config().cluster.workers);
  const std::vector<float> gathered = GetBuffers(*model_);
  int64_t passes = 0;
  model_->BeginStatistics();
  for (int64_t b = 0; b < batches; ++b) {
    RV_ASSIGN_OR_RETURN(const Batch batch, train_->Make(b, workers, rank_));
    if (batch.size() == 0) continue;
    model_->Forward(batch.images, batch.labels);
    ++passes;
  }
  model_->EndStatistics();
  // In a set smaller than the workers are many this rank may have no sample.
  if (passes == 0) SetBuffers(*model_, gathered);
  return absl::OkStatus();
}

absl::StatusOr<LossResult> Evaluator::EvaluateShare() {
  const int workers = static_cast<int>(plan_->config().cluster.workers);
  const Slice share = SliceOf(test_->size(), workers, rank_);
  return EvaluateDataset(*model_, *test_, share.begin, share.end);
}

}  // namespace rivulet
