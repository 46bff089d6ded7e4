#include "models/layers/conv_norm.h"

#include <utility>

#include "common/base/status_macros.h"

namespace rivulet {
namespace {

NormalizationSpec NormSpec(const ConvNormOptions& options) {
  NormalizationSpec spec;
  spec.shape = options.convolution.Output();
  spec.kind = options.norm == NormKind::kBatch
                  ? NormalizationSpec::Kind::kBatch
                  : NormalizationSpec::Kind::kGroup;
  spec.group_size = options.group_size;
  spec.relu = options.relu;
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConvNorm>> ConvNorm::Create(
    const ConvNormOptions& options, const LayerContext& context) {
  auto convolution = context.backend.MakeConvolution(options.convolution);
  RV_RETURN_IF_ERROR(Annotate(convolution.status(), options.convolution_name));
  auto normalization = context.backend.MakeNormalization(NormSpec(options));
  RV_RETURN_IF_ERROR(Annotate(normalization.status(), options.norm_name));
  return std::unique_ptr<ConvNorm>(new ConvNorm(
      options, context, *std::move(convolution), *std::move(normalization)));
}

ConvNorm::ConvNorm(const ConvNormOptions& options, const LayerContext& context,
                   std::unique_ptr<Convolution<float>> convolution,
                   std::unique_ptr<Normalization<float>> normalization)
    : parameters_(context.parameters),
      workspace_(context.workspace),
      convolution_(std::move(convolution)),
      normalization_(std::move(normalization)),
      values_per_channel_(options.convolution.Output().n *
                          options.convolution.Output().pixels()),
      convolved_(context.plan.Add(
          context.backend.ImageSize(options.convolution.Output()))),
      weight_(parameters_.Find(options.convolution_name + ".weight")),
      scale_(parameters_.Find(options.norm_name + ".weight")),
      shift_(parameters_.Find(options.norm_name + ".bias")) {
  if (options.norm != NormKind::kBatch) return;
  running_mean_ = parameters_.FindBuffer(options.norm_name + ".running_mean");
  running_variance_ =
      parameters_.FindBuffer(options.norm_name + ".running_var");
}

void ConvNorm::PackWeights() {
  if (packed_version_ == parameters_.version()) return;
  convolution_->SetWeights(parameters_.value(weight_).data());
  packed_version_ = parameters_.version();
}

void ConvNorm::Forward(const float* x, float* y) {
  PackWeights();
  float* convolved = workspace_.at(convolved_);
  convolution_->Forward(x, convolved);
  normalization_->Forward(convolved, parameters_.value(scale_).data(),
                          parameters_.value(shift_).data(), y);
  if (running_mean_ < 0) return;
  parameters_.RecordStatistics(running_mean_, running_variance_,
                               normalization_->mean(),
                               normalization_->variance(), values_per_channel_);
}

void ConvNorm::Evaluate(const float* x, float* y) {
  PackWeights();
  float* convolved = workspace_.at(convolved_);
  convolution_->Forward(x, convolved);
  const bool batch_norm = running_mean_ >= 0;
  normalization_->Evaluate(
      convolved, parameters_.value(scale_).data(),
      parameters_.value(shift_).data(),
      batch_norm ? parameters_.buffer(running_mean_).data() : nullptr,
      batch_norm ? parameters_.buffer(running_variance_).data() : nullptr, y);
}

void ConvNorm::Backward(const float* x, const float* y, const float* dy,
                        float* inner, float* dx, const ReadyCallback& ready) {
  normalization_->Backward(
      workspace_.at(convolved_), y, parameters_.value(scale_).data(), dy, inner,
      parameters_.gradient(scale_).data(), parameters_.gradient(shift_).data());
  ready(shift_);
  ready(scale_);
  convolution_->BackwardWeights(x, inner, parameters_.gradient(weight_).data());
  ready(weight_);
  if (dx != nullptr) convolution_->BackwardData(inner, dx);
}

}  // namespace rivulet
