// Everything about a run that follows from its config alone, so that workers,
// shards and the controller agree on it without a message: the manifest, who
// owns which segment, how many steps there are, and each step's density, bits,
// learning rate and evaluations.
//
// Immutable after construction; thread-safe.

#ifndef RIVULET_COMMON_DAEMON_RUN_PLAN_H_
#define RIVULET_COMMON_DAEMON_RUN_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/config.h"
#include "compression/density_schedule.h"
#include "compression/gradient_compressor.h"
#include "compression/plan.h"
#include "compression/segment_table.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/manifest/manifest.h"
#include "models/manifest/partition.h"
#include "models/optim/schedule.h"
#include "models/optim/sgd.h"

namespace rivulet {

class RunPlan {
 public:
  // InvalidArgument for what the config's own checks cannot see, such as a
  // density that does not fit the number of steps.
  static absl::StatusOr<std::shared_ptr<const RunPlan>> Create(
      const Config& config);

  const Config& config() const { return config_; }
  const ModelOptions& model_options() const { return model_options_; }
  const DatasetOptions& dataset_options() const { return dataset_options_; }
  const DatasetInfo& dataset_info() const { return dataset_info_; }
  const LoaderOptions& loader_options() const { return loader_options_; }
  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_hash() const { return manifest_hash_; }
  const Partition& partition() const { return partition_; }

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t total_steps() const { return total_steps_; }
  // Steps are numbered from 0; true after which of them everybody evaluates.
  // Always true for the last one.
  bool EvaluatesAfter(int64_t step) const;
  bool IsLast(int64_t step) const { return step + 1 == total_steps_; }

  // What both ends know of a shard's segments.
  const SegmentTable& segment_table(int shard) const {
    return segment_tables_[static_cast<size_t>(shard)];
  }

  // What a worker sends of parameter `tensor` in `step`, and a shard answers.
  TensorPlan Up(int tensor, int64_t step) const;
  TensorPlan Down(int tensor, int64_t step) const;
  // Whether the shards' frame of this step holds the weights themselves rather
  // than a compressed change: always without compression, and in the last step,
  // so that a run ends with v̂ = w.
  bool DownIsExact(int64_t step) const;

  // policy none: raw gradients go up, momentum lives in the shard.
  bool momentum_on_shard() const;
  // Of workers, for parameter `tensor`.
  GradientCompressorOptions compressor_options(int tensor) const;
  SgdOptions shard_optimizer() const;
  double LearningRate(int64_t step) const;
  // Weight decay of parameter `tensor`, 0 where it does not apply.
  double WeightDecay(int tensor) const;
  // Bound on a worker's gradient norm, clip_norm / sqrt(workers); 0: none.
  double LocalClipNorm(int workers) const;
  // First step after the density warm-up.
  int64_t steady_from() const;

 private:
  explicit RunPlan(Partition partition) : partition_(std::move(partition)) {}

  // The second half of Create: numbers of steps, and the schedules over them.
  absl::Status LayOutSteps();
  // Whether residuals are sent whole in `step`: the last one before the
  // learning rate drops, or of the run.
  bool Flushes(int64_t step) const;
  const TensorSpec& spec(int tensor) const;
  void TableSegments();
  TensorPlan PlanOf(double density, int64_t bits) const;
  TensorPlan SmallPlan(int tensor, int64_t step, int64_t bits,
                       double density) const;

  Config config_;
  ModelOptions model_options_;
  DatasetOptions dataset_options_;
  DatasetInfo dataset_info_;
  LoaderOptions loader_options_;
  Manifest manifest_;
  std::string manifest_hash_;
  Partition partition_;
  std::vector<SegmentTable> segment_tables_;
  std::vector<int64_t> small_turn_;  // by tensor: its step in a round of turns
  int64_t steps_per_epoch_ = 0;
  int64_t total_steps_ = 0;
  int64_t evaluate_every_steps_ = 0;
  ScheduleOptions schedule_;
  DensityScheduleOptions up_schedule_;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_RUN_PLAN_H_
