#include "common/daemon/run_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/daemon/digest.h"
#include "compression/quantizer.h"

namespace rivulet {
namespace {

// From this density on positions cost more than they save: all is sent.
constexpr double kDenseFrom = 0.6;
// Share of the learning rate at which what is not sent no longer matters.
constexpr double kNegligibleRate = 0.01;

DatasetOptions DatasetOptionsOf(const Config& config) {
  const SyntheticConfig& synthetic = config.data.synthetic;
  DatasetOptions options;
  options.name = config.data.name;
  options.path = config.data.path;
  options.synthetic_train = synthetic.train;
  options.synthetic_test = synthetic.test;
  options.synthetic_classes = synthetic.classes;
  options.synthetic_shape = {synthetic.channels, synthetic.height,
                             synthetic.width};
  options.synthetic_seed = static_cast<uint64_t>(synthetic.seed);
  return options;
}

ModelOptions ModelOptionsOf(const Config& config, const DatasetInfo& data) {
  ModelOptions options;
  options.name = config.model.name;
  options.num_classes = data.num_classes;
  options.channels = data.shape.channels;
  options.height = data.shape.height;
  options.width = data.shape.width;
  options.norm =
      config.model.norm == "group" ? NormKind::kGroup : NormKind::kBatch;
  options.group_size = config.model.group_size;
  options.hidden = config.model.hidden;
  return options;
}

LoaderOptions LoaderOptionsOf(const Config& config) {
  LoaderOptions options;
  options.batch_size = config.train.batch_size;
  options.seed = static_cast<uint64_t>(config.train.seed);
  if (config.data.augment == "pad_crop") {
    options.augment = Augment::kPadCrop;
  } else if (config.data.augment == "pad_crop_flip") {
    options.augment = Augment::kPadCropFlip;
  }
  options.pad = config.data.pad;
  options.drop_last = config.train.drop_last;
  return options;
}

int64_t StepsOf(double epochs, int64_t steps_per_epoch) {
  return std::llround(epochs * static_cast<double>(steps_per_epoch));
}

int64_t TotalSteps(const TrainConfig& train, int64_t steps_per_epoch) {
  int64_t steps = StepsOf(train.epochs, steps_per_epoch);
  if (train.max_steps > 0) steps = std::min(steps, train.max_steps);
  return std::max<int64_t>(steps, 1);
}

ScheduleOptions::Kind KindOf(const std::string& kind) {
  if (kind == "constant") return ScheduleOptions::Kind::kConstant;
  if (kind == "step") return ScheduleOptions::Kind::kStep;
  if (kind == "linear") return ScheduleOptions::Kind::kLinear;
  return ScheduleOptions::Kind::kCosine;
}

// Warm-ups and milestones beyond the run's end are cut off, so that a run may
// be made shorter by one key.
ScheduleOptions ScheduleOf(const OptimizerConfig& optimizer,
                           int64_t steps_per_epoch, int64_t total_steps) {
  ScheduleOptions schedule;
  schedule.kind = KindOf(optimizer.schedule.kind);
  schedule.learning_rate = optimizer.learning_rate;
  schedule.warmup_steps = std::min(
      StepsOf(optimizer.schedule.warmup_epochs, steps_per_epoch), total_steps);
  schedule.total_steps = total_steps;
  schedule.final_rate = optimizer.schedule.final_rate;
  schedule.gamma = optimizer.schedule.gamma;
  for (const double epochs : optimizer.schedule.milestones) {
    const int64_t step = StepsOf(epochs, steps_per_epoch);
    if (step < total_steps) schedule.milestones.push_back(step);
  }
  return schedule;
}

DensityScheduleOptions DensityScheduleOf(const CompressionConfig& compression,
                                         int64_t steps_per_epoch,
                                         int64_t total_steps) {
  DensityScheduleOptions schedule;
  schedule.density = compression.density;
  if (compression.policy == "warmup") {
    schedule.warmup_steps = std::min(
        StepsOf(compression.warmup.epochs, steps_per_epoch), total_steps);
  }
  schedule.warmup_start = compression.warmup.start;
  schedule.warmup_cap = compression.warmup.cap;
  schedule.warmup_rungs = static_cast<int>(compression.warmup.rungs);
  schedule.total_steps = total_steps;
  schedule.min_moves = compression.min_moves;
  return schedule;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RunPlan>> RunPlan::Create(
    const Config& config) {
  // A config need not come from a file.
  RV_RETURN_IF_ERROR(CheckConfig(config));
  const DatasetOptions dataset = DatasetOptionsOf(config);
  auto info = DescribeDataset(dataset);
  if (!info.ok()) return Annotate(info.status(), "data.name");
  const ModelOptions model = ModelOptionsOf(config, *info);
  auto manifest = BuildManifest(model);
  if (!manifest.ok()) return Annotate(manifest.status(), "model");
  auto partition =
      Partition::Create(*manifest, static_cast<int>(config.cluster.shards));
  if (!partition.ok()) return Annotate(partition.status(), "cluster.shards");

  std::shared_ptr<RunPlan> plan(new RunPlan(*std::move(partition)));
  plan->config_ = config;
  plan->dataset_options_ = dataset;
  plan->dataset_info_ = *info;
  plan->model_options_ = model;
  plan->loader_options_ = LoaderOptionsOf(config);
  plan->manifest_ = *std::move(manifest);
  plan->manifest_hash_ = Sha256Hex(plan->manifest_.Canonical());
  plan->TableSegments();
  RV_RETURN_IF_ERROR(plan->LayOutSteps());
  return plan;
}

void RunPlan::TableSegments() {
  small_turn_.assign(manifest_.parameters.size(), 0);
  const int64_t every = config_.compression.small_every;
  for (int shard = 0; shard < partition_.num_shards(); ++shard) {
    std::vector<SegmentTable::Info> infos;
    int64_t small_elements = 0;
    for (const Segment& s : partition_.OfShard(shard)) {
      infos.push_back({s.size(), spec(s.tensor).is_small()});
      if (infos.back().small) small_elements += s.size();
    }
    segment_tables_.emplace_back(std::move(infos));
    // Neighbours in a turn share a block's head.
    int64_t before = 0;
    for (const Segment& s : partition_.OfShard(shard)) {
      if (!spec(s.tensor).is_small()) continue;
      if (s.begin == 0) {
        small_turn_[static_cast<size_t>(s.tensor)] =
            TurnOf(before, s.size(), small_elements, every);
      }
      before += s.size();
    }
  }
}

absl::Status RunPlan::LayOutSteps() {
  const TrainConfig& train = config_.train;
  steps_per_epoch_ = StepsPerEpoch(dataset_info_.train_size, train.batch_size,
                                   train.drop_last);
  if (steps_per_epoch_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "train.batch_size: found ", train.batch_size, " with ",
        dataset_info_.train_size,
        " training samples, which leaves no whole batch; allowed: at most that "
        "many, or train.drop_last: false"));
  }
  total_steps_ = TotalSteps(train, steps_per_epoch_);
  if (train.evaluate_every_epochs > 0) {
    evaluate_every_steps_ = std::max<int64_t>(
        StepsOf(train.evaluate_every_epochs, steps_per_epoch_), 1);
  }
  schedule_ = ScheduleOf(config_.optimizer, steps_per_epoch_, total_steps_);
  RV_RETURN_IF_ERROR(Annotate(schedule_.Validate(), "optimizer.schedule"));
  up_schedule_ =
      DensityScheduleOf(config_.compression, steps_per_epoch_, total_steps_);
  if (config_.compression.is_sparse()) {
    RV_RETURN_IF_ERROR(
        Annotate(up_schedule_.Validate(), "compression.density"));
  }
  return absl::OkStatus();
}

bool RunPlan::EvaluatesAfter(int64_t step) const {
  if (IsLast(step)) return true;
  return evaluate_every_steps_ > 0 && (step + 1) % evaluate_every_steps_ == 0;
}

bool RunPlan::Flushes(int64_t step) const {
  if (!config_.compression.flush || !config_.compression.is_sparse())
    return false;
  if (IsLast(step)) {
    // What is left counts by the rate that is left.
    return LearningRate(step) > kNegligibleRate * schedule_.learning_rate;
  }
  if (schedule_.kind != ScheduleOptions::Kind::kStep) return false;
  return std::find(schedule_.milestones.begin(), schedule_.milestones.end(),
                   step + 1) != schedule_.milestones.end();
}

TensorPlan RunPlan::PlanOf(double density, int64_t bits) const {
  const CompressionConfig& compression = config_.compression;
  TensorPlan plan;
  plan.value_bits = static_cast<int>(bits);
  // Fewer than 4 bits pay for their positions up to the end.
  const double dense_from = IsLinearBits(plan.value_bits) ? kDenseFrom : 1.0;
  plan.density = density >= dense_from ? 1.0 : density;
  if (plan.dense()) plan.value_bits = std::max(plan.value_bits, 4);
  if (compression.rounding == "stochastic") {
    plan.rounding = Rounding::kStochastic;
  }
  if (compression.levels == "steps") plan.level_fit = LevelFit::kSteps;
  return plan;
}

TensorPlan RunPlan::SmallPlan(int tensor, int64_t step, int64_t bits,
                              double density) const {
  const CompressionConfig& compression = config_.compression;
  if (Flushes(step) || compression.small_form == "dense") {
    return PlanOf(1.0, bits);
  }
  if (compression.small_form == "sparse") return PlanOf(density, bits);
  const bool its_turn = step % compression.small_every ==
                        small_turn_[static_cast<size_t>(tensor)];
  return PlanOf(its_turn ? 1.0 : 0.0, bits);
}

TensorPlan RunPlan::Up(int tensor, int64_t step) const {
  const CompressionConfig& compression = config_.compression;
  if (!compression.is_sparse()) return {};
  if (spec(tensor).is_small()) {
    return SmallPlan(tensor, step, compression.small_bits,
                     compression.small_density);
  }
  if (Flushes(step)) return PlanOf(1.0, compression.small_bits);
  return PlanOf(DensityAt(up_schedule_, step), compression.value_bits);
}

TensorPlan RunPlan::Down(int tensor, int64_t step) const {
  const DownConfig& down = config_.compression.down;
  if (DownIsExact(step)) return {};
  const auto workers = static_cast<double>(config_.cluster.workers);
  if (spec(tensor).is_small()) {
    return SmallPlan(
        tensor, step, down.small_bits,
        std::min(1.0, config_.compression.small_density * workers / 2));
  }
  if (Flushes(step)) return PlanOf(1.0, down.small_bits);
  // The answer keeps pace with the pushes: one ratio for the whole run.
  const double up = DensityAt(up_schedule_, step);
  const double ratio =
      down.density > 0 ? down.density / up_schedule_.density : workers / 2;
  return PlanOf(std::min(1.0, up * ratio), down.value_bits);
}

bool RunPlan::DownIsExact(int64_t step) const {
  return !config_.compression.is_sparse() || IsLast(step);
}

bool RunPlan::momentum_on_shard() const {
  return config_.compression.policy == "none";
}

GradientCompressorOptions RunPlan::compressor_options(int tensor) const {
  const CompressionConfig& compression = config_.compression;
  GradientCompressorOptions options;
  if (momentum_on_shard()) {
    options.momentum = 0;
    options.form = MomentumForm::kNone;
    options.mask = false;
    options.compensation = 0;
    return options;
  }
  options.momentum = config_.optimizer.momentum;
  if (config_.optimizer.momentum == 0) {
    options.form = MomentumForm::kNone;
  } else {
    options.form = config_.optimizer.nesterov ? MomentumForm::kNesterov
                                              : MomentumForm::kPlain;
  }
  options.mask_max_density = compression.mask_max_density;
  if (spec(tensor).is_small() && compression.small_form != "sparse") {
    // Sent whole, so never masked.
    options.mask = false;
  } else if (compression.folds_momentum()) {
    options.form = MomentumForm::kNone;
    options.momentum = 0;
    options.mask = false;
    options.gain = 1 / (1 - config_.optimizer.momentum);
  } else {
    options.mask = compression.masking;
    options.compensation = compression.compensation;
  }
  return options;
}

SgdOptions RunPlan::shard_optimizer() const {
  if (!momentum_on_shard()) return {};
  return {.momentum = config_.optimizer.momentum,
          .nesterov = config_.optimizer.nesterov};
}

double RunPlan::LearningRate(int64_t step) const {
  return LearningRateAt(schedule_, step);
}

double RunPlan::WeightDecay(int tensor) const {
  const bool applies = spec(tensor).decay && (!spec(tensor).is_small() ||
                                              config_.optimizer.decay_small);
  return applies ? config_.optimizer.weight_decay : 0;
}

double RunPlan::LocalClipNorm(int workers) const {
  RV_CHECK_GE(workers, 1);
  return config_.optimizer.clip_norm / std::sqrt(static_cast<double>(workers));
}

int64_t RunPlan::steady_from() const {
  return config_.compression.is_sparse() ? up_schedule_.warmup_steps : 0;
}

const TensorSpec& RunPlan::spec(int tensor) const {
  RV_CHECK_GE(tensor, 0);
  RV_CHECK_LT(static_cast<size_t>(tensor), manifest_.parameters.size());
  return manifest_.parameters[static_cast<size_t>(tensor)];
}

}  // namespace rivulet
