#include "worker/push_pipeline.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace rivulet {

// A cut between shards never splits a block that is quantized together.
static_assert(kSegmentAlignment % kQuantizationBlock == 0);
namespace {

// Without compression: all values as they are.
absl::Status TakeRaw(const GradientInput& input, CompressedTensor* out) {
  const absl::Span<const float> gradient = input.gradient->span();
  out->Reset(input.gradient->size(), /*is_dense=*/true, ValueCode::kFloat);
  out->values.resize(gradient.size());
  bool finite = true;
  for (size_t i = 0; i < gradient.size(); ++i) {
    out->values[i] =
        input.scale * gradient[i] + input.decay * input.parameter[i];
    finite &= std::isfinite(out->values[i]);
  }
  if (finite) return absl::OkStatus();
  return absl::InvalidArgumentError("the gradient is not finite");
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushPipeline>> PushPipeline::Create(
    std::shared_ptr<const RunPlan> plan, const Options& options,
    std::vector<ShardStream*> shards) {
  RV_CHECK_EQ(static_cast<int>(shards.size()), plan->partition().num_shards());
  std::unique_ptr<PushPipeline> pipeline(
      new PushPipeline(std::move(plan), options, std::move(shards)));
  const RunPlan& run = *pipeline->plan_;
  if (run.momentum_on_shard()) return pipeline;
  const std::vector<TensorSpec>& parameters = run.manifest().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    GradientCompressorOptions of_tensor =
        run.compressor_options(static_cast<int>(i));
    of_tensor.threads = options.threads;
    auto compressor =
        GradientCompressor::Create(parameters[i].num_elements(), of_tensor);
    if (!compressor.ok()) {
      return Annotate(compressor.status(), parameters[i].name);
    }
    pipeline->compressors_.push_back(*std::move(compressor));
  }
  return pipeline;
}

PushPipeline::PushPipeline(std::shared_ptr<const RunPlan> plan,
                           const Options& options,
                           std::vector<ShardStream*> shards)
    : plan_(std::move(plan)), options_(options) {
  for (size_t s = 0; s < shards.size(); ++s) {
    lanes_.emplace_back(&plan_->segment_table(static_cast<int>(s)));
    lanes_.back().stream = shards[s];
  }
}

void PushPipeline::BeginStep(int64_t step) {
  RV_CHECK(!in_step_) << "step " << step_ << " is open";
  in_step_ = true;
  step_ = step;
}

absl::Status PushPipeline::OnGradient(int tensor,
                                      AlignedBuffer<float>* gradient,
                                      float scale,
                                      absl::Span<const float> parameter) {
  RV_CHECK(in_step_);
  RV_CHECK_EQ(gradient->size(), static_cast<int64_t>(parameter.size()));
  const absl::Time start = absl::Now();
  GradientInput input;
  input.gradient = gradient;
  input.parameter = parameter;
  input.scale = scale;
  // The decay joins the gradient before momentum.
  input.decay = static_cast<float>(plan_->WeightDecay(tensor));
  input.noise = {static_cast<uint64_t>(plan_->config().train.seed),
                 static_cast<uint64_t>(step_),
                 NoiseStreamOfWorker(options_.rank, tensor)};
  absl::Status status = Compress(tensor, input);
  if (status.ok()) Encode(tensor);
  compress_time_ += absl::Now() - start;
  return status;
}

absl::Status PushPipeline::Compress(int tensor, const GradientInput& input) {
  absl::Status status;
  if (compressors_.empty()) {
    status = TakeRaw(input, &compressed_);
  } else {
    status = compressors_[static_cast<size_t>(tensor)]->Compress(
        input, plan_->Up(tensor, step_), &compressed_);
    if (status.ok()) pending_.push_back(tensor);
  }
  return Annotate(
      status,
      absl::StrCat(
          "step ", step_, ", ",
          plan_->manifest().parameters[static_cast<size_t>(tensor)].name));
}

void PushPipeline::Encode(int tensor) {
  for (const Segment& segment : plan_->partition().OfTensor(tensor)) {
    Lane& lane = lanes_[static_cast<size_t>(segment.shard)];
    lane.encoder.Add(static_cast<uint32_t>(segment.local), compressed_,
                     segment.begin, segment.end);
    if (lane.encoder.size_bytes() >= plan_->config().compression.bucket_bytes) {
      lane.stream->SendPush(step_, TakeFrame(&lane));
    }
  }
}

std::string PushPipeline::TakeFrame(Lane* lane) {
  if (lane->encoder.empty()) return "";
  std::string frame = lane->encoder.Finish();
  lane->crc32c = ExtendCrc32c(lane->crc32c, frame);
  return frame;
}

void PushPipeline::Commit(int64_t samples, uint64_t schedule_seq) {
  RV_CHECK(in_step_);
  for (const int tensor : pending_) {
    compressors_[static_cast<size_t>(tensor)]->Commit();
  }
  v1::Commit commit;
  commit.set_samples(static_cast<uint32_t>(samples));
  commit.set_schedule_seq(schedule_seq);
  SendCommits(commit);
}

void PushPipeline::Void(uint64_t schedule_seq) {
  RV_CHECK(in_step_);
  for (const int tensor : pending_) {
    compressors_[static_cast<size_t>(tensor)]->Rollback();
  }
  v1::Commit commit;
  commit.set_voided(true);
  commit.set_schedule_seq(schedule_seq);
  SendCommits(commit);
}

void PushPipeline::SendCommits(const v1::Commit& commit) {
  for (Lane& lane : lanes_) {
    // What a voided push has not sent yet would only be dropped.
    if (commit.voided()) lane.encoder.Clear();
    std::string frame = TakeFrame(&lane);
    v1::Commit own = commit;
    own.set_crc32c(lane.crc32c);
    lane.crc32c = 0;
    lane.stream->SendCommit(step_, std::move(frame), own);
  }
  pending_.clear();
  in_step_ = false;
}

absl::Duration PushPipeline::TakeCompressTime() {
  return std::exchange(compress_time_, absl::ZeroDuration());
}

GradientCompressor* PushPipeline::compressor(int tensor) {
  if (compressors_.empty()) return nullptr;
  return compressors_[static_cast<size_t>(tensor)].get();
}

}  // namespace rivulet
