#include "models/layers/residual_block.h"

#include <utility>

#include "common/base/status_macros.h"

namespace rivulet {

ConvolutionSpec ResidualBlockOptions::First() const {
  ConvolutionSpec spec;
  spec.input = input;
  spec.out_channels = channels;
  spec.stride = stride;
  return spec;
}

ConvolutionSpec ResidualBlockOptions::Second() const {
  ConvolutionSpec spec;
  spec.input = First().Output();
  spec.out_channels = channels;
  return spec;
}

ResidualBlock::ResidualBlock(const ResidualBlockOptions& options,
                             const LayerContext& context)
    : elementwise_(context.backend.elementwise()),
      workspace_(context.workspace),
      output_size_(context.backend.ImageSize(options.First().Output())),
      hidden_(context.plan.Add(output_size_)),
      output_(context.plan.Add(output_size_)) {}

absl::StatusOr<std::unique_ptr<ResidualBlock>> ResidualBlock::Create(
    const ResidualBlockOptions& options, const LayerContext& context) {
  std::unique_ptr<ResidualBlock> block(new ResidualBlock(options, context));
  ConvNormOptions layer;
  layer.norm = options.norm;
  layer.group_size = options.group_size;
  layer.convolution_name = options.name + ".conv1";
  layer.norm_name = options.name + ".bn1";
  layer.convolution = options.First();
  RV_ASSIGN_OR_RETURN(block->first_, ConvNorm::Create(layer, context));
  layer.convolution_name = options.name + ".conv2";
  layer.norm_name = options.name + ".bn2";
  layer.convolution = options.Second();
  layer.relu = false;  // comes after the addition
  RV_ASSIGN_OR_RETURN(block->second_, ConvNorm::Create(layer, context));
  if (options.stride != 1) {
    RV_ASSIGN_OR_RETURN(
        block->shortcut_,
        context.backend.MakeShortcut({options.input, options.channels}));
    block->skip_ = context.plan.Add(block->output_size_);
  }
  return block;
}

const float* ResidualBlock::Skip(const float* x) {
  if (shortcut_ == nullptr) return x;
  shortcut_->Forward(x, workspace_.at(skip_));
  return workspace_.at(skip_);
}

float* ResidualBlock::Forward(const float* x) {
  float* hidden = workspace_.at(hidden_);
  float* y = workspace_.at(output_);
  first_->Forward(x, hidden);
  second_->Forward(hidden, y);
  elementwise_.AddRelu(output_size_, y, Skip(x), y);
  return y;
}

float* ResidualBlock::Evaluate(const float* x) {
  float* hidden = workspace_.at(hidden_);
  float* y = workspace_.at(output_);
  first_->Evaluate(x, hidden);
  second_->Evaluate(hidden, y);
  elementwise_.AddRelu(output_size_, y, Skip(x), y);
  return y;
}

void ResidualBlock::Backward(const float* x, BackwardBuffers& buffers,
                             const ReadyCallback& ready) {
  const float* hidden = workspace_.at(hidden_);
  const float* y = workspace_.at(output_);
  float* const branch = buffers.branch;
  float* const sum = buffers.skip;
  if (buffers.has_skip) {
    elementwise_.AddReluBackward(output_size_, y, branch, sum, sum);
  } else {
    elementwise_.ReluBackward(output_size_, y, branch, sum);
  }
  second_->Backward(hidden, y, sum, branch, buffers.spare, ready);
  first_->Backward(x, hidden, buffers.spare, buffers.spare, branch, ready);
  if (shortcut_ != nullptr) shortcut_->BackwardAdd(sum, branch);
  buffers.has_skip = shortcut_ == nullptr;
}

}  // namespace rivulet
