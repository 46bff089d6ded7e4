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

bool AllFinite(absl::Span<const float> values) {
  bool finite = true;
  for (const float x : values) finite &= std::isfinite(x);
  return finite;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushPipeline>> PushPipeline::Create(
    std::shared_ptr<const RunPlan> plan, std::vector<ShardStream*> shards) {
  RV_CHECK_EQ(static_cast<int>(shards.size()), plan->partition().num_shards());
  std::unique_ptr<PushPipeline> pipeline(
      new PushPipeline(std::move(plan), std::move(shards)));
  const RunPlan& run = *pipeline->plan_;
  if (run.momentum_on_shard()) return pipeline;
  for (const TensorSpec& spec : run.manifest().parameters) {
    auto compressor = GradientCompressor::Create(spec.num_elements(),
                                                 run.compressor_options());
    if (!compressor.ok()) return Annotate(compressor.status(), spec.name);
    pipeline->compressors_.push_back(*std::move(compressor));
  }
  return pipeline;
}

PushPipeline::PushPipeline(std::shared_ptr<const RunPlan> plan,
                           std::vector<ShardStream*> shards)
    : plan_(std::move(plan)), lanes_(shards.size()) {
  for (size_t s = 0; s < shards.size(); ++s) lanes_[s].stream = shards[s];
}

void PushPipeline::BeginStep(int64_t step) {
  RV_CHECK(!in_step_) << "step " << step_ << " is open";
  in_step_ = true;
  step_ = step;
}

absl::Status PushPipeline::OnGradient(int tensor,
                                      absl::Span<const float> gradient,
                                      float scale,
                                      absl::Span<const float> parameter) {
  RV_CHECK(in_step_);
  const absl::Time start = absl::Now();
  absl::Status status =
      Compress(tensor, Prepare(tensor, gradient, scale, parameter));
  if (status.ok()) Encode(tensor);
  compress_time_ += absl::Now() - start;
  return status;
}

// scale * g + wd * v̂: the decay joins the gradient before momentum.
absl::Span<const float> PushPipeline::Prepare(
    int tensor, absl::Span<const float> gradient, float scale,
    absl::Span<const float> parameter) {
  RV_CHECK_EQ(gradient.size(), parameter.size());
  const auto decay = static_cast<float>(plan_->WeightDecay(tensor));
  if (decay == 0 && scale == 1) return gradient;
  prepared_.resize(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    prepared_[i] = scale * gradient[i] + decay * parameter[i];
  }
  return prepared_;
}

absl::Status PushPipeline::Compress(int tensor,
                                    absl::Span<const float> values) {
  absl::Status status;
  if (compressors_.empty()) {
    if (AllFinite(values)) {
      compressed_ = CompressedTensor();
      compressed_.size = static_cast<int64_t>(values.size());
      compressed_.dense = true;
      compressed_.value_bits = 32;
      compressed_.values.assign(values.begin(), values.end());
    } else {
      status = absl::InvalidArgumentError("the gradient is not finite");
    }
  } else {
    status = compressors_[static_cast<size_t>(tensor)]->Compress(
        values, plan_->Up(tensor, step_), &compressed_);
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
    if (commit.voided()) lane.encoder = FrameEncoder();
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
