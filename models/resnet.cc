#include "models/resnet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "models/layers/residual_block.h"

namespace rivulet {
namespace {

ConvolutionSpec Stem(const ModelOptions& options, int64_t batch) {
  ConvolutionSpec spec;
  spec.input = {batch, options.channels, options.height, options.width};
  spec.out_channels = kResNetStageChannels[0];
  spec.plain_input = true;
  spec.needs_input_gradient = false;
  return spec;
}

std::vector<ResidualBlockOptions> Blocks(const ModelOptions& options,
                                         int64_t batch) {
  std::vector<ResidualBlockOptions> blocks;
  ActivationShape shape = Stem(options, batch).Output();
  const int64_t per_stage = ResNetBlocksPerStage(options.name);
  int stage = 0;
  for (const int64_t channels : kResNetStageChannels) {
    ++stage;
    for (int64_t b = 0; b < per_stage; ++b) {
      ResidualBlockOptions block;
      block.name = absl::StrCat("layer", stage, ".", b);
      block.input = shape;
      block.channels = channels;
      block.stride = stage > 1 && b == 0 ? 2 : 1;
      block.norm = options.norm;
      block.group_size = options.group_size;
      shape = block.Second().Output();
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

class ResNet final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      const ModelOptions& options, int64_t batch, const LayerContext& context) {
    std::unique_ptr<ResNet> net(new ResNet(context));
    RV_RETURN_IF_ERROR(net->Build(options, batch, context));
    return net;
  }

  float* Forward(const float* images) override {
    float* x = workspace_.at(stem_output_);
    stem_->Forward(images, x);
    for (auto& block : blocks_) x = block->Forward(x);
    return Classify(x);
  }

  float* Evaluate(const float* images) override {
    float* x = workspace_.at(stem_output_);
    stem_->Evaluate(images, x);
    for (auto& block : blocks_) x = block->Evaluate(x);
    return Classify(x);
  }

  void Backward(const float* images, const float* logits_gradient,
                const ReadyCallback& ready) override {
    fc_->BackwardWeights(workspace_.at(pooled_), logits_gradient,
                         parameters_.gradient(fc_weight_).data(),
                         parameters_.gradient(fc_bias_).data());
    ready(fc_bias_);
    ready(fc_weight_);
    BackwardBuffers buffers;
    buffers.branch = workspace_.at(gradients_[0]);
    buffers.skip = workspace_.at(gradients_[1]);
    buffers.spare = workspace_.at(gradients_[2]);
    float* pooled_gradient = workspace_.at(pooled_gradient_);
    fc_->BackwardData(logits_gradient, parameters_.value(fc_weight_).data(),
                      pooled_gradient);
    pool_->BackwardData(pooled_gradient, buffers.branch);
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      blocks_[b]->Backward(workspace_.at(block_inputs_[b]), buffers, ready);
    }
    // The first block of stage 1 has the identity as its shortcut.
    float* gradient = buffers.branch;
    const float* x = workspace_.at(stem_output_);
    elementwise_.AddReluBackward(stem_size_, x, buffers.branch, buffers.skip,
                                 gradient);
    stem_->Backward(images, x, gradient, gradient, nullptr, ready);
  }

 private:
  explicit ResNet(const LayerContext& context)
      : elementwise_(context.backend.elementwise()),
        parameters_(context.parameters),
        workspace_(context.workspace) {}

  absl::Status Build(const ModelOptions& options, int64_t batch,
                     const LayerContext& context) {
    ConvNormOptions stem;
    stem.convolution_name = "conv1";
    stem.norm_name = "bn1";
    stem.convolution = Stem(options, batch);
    stem.norm = options.norm;
    stem.group_size = options.group_size;
    RV_ASSIGN_OR_RETURN(stem_, ConvNorm::Create(stem, context));
    stem_size_ = context.backend.ImageSize(stem.convolution.Output());
    stem_output_ = context.plan.Add(stem_size_);

    ActivationShape shape = stem.convolution.Output();
    WorkspaceSlot input = stem_output_;
    for (const ResidualBlockOptions& block : Blocks(options, batch)) {
      RV_ASSIGN_OR_RETURN(blocks_.emplace_back(),
                          ResidualBlock::Create(block, context));
      block_inputs_.push_back(input);
      input = blocks_.back()->output();
      shape = block.Second().Output();
    }
    RV_ASSIGN_OR_RETURN(pool_, context.backend.MakePool(shape));
    RV_ASSIGN_OR_RETURN(
        fc_, context.backend.MakeLinear({batch, shape.c, options.num_classes}));
    fc_weight_ = parameters_.Find("fc.weight");
    fc_bias_ = parameters_.Find("fc.bias");
    pooled_ = context.plan.Add(batch * shape.c);
    pooled_gradient_ = context.plan.Add(batch * shape.c);
    logits_ = context.plan.Add(batch * options.num_classes);
    // No later image is larger than the stem's.
    for (WorkspaceSlot& slot : gradients_) slot = context.plan.Add(stem_size_);
    return absl::OkStatus();
  }

  float* Classify(const float* x) {
    float* pooled = workspace_.at(pooled_);
    float* logits = workspace_.at(logits_);
    pool_->Forward(x, pooled);
    fc_->Forward(pooled, parameters_.value(fc_weight_).data(),
                 parameters_.value(fc_bias_).data(), logits);
    return logits;
  }

  Elementwise<float>& elementwise_;
  Parameters& parameters_;
  Workspace& workspace_;
  std::unique_ptr<ConvNorm> stem_;
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
  std::vector<WorkspaceSlot> block_inputs_;
  std::unique_ptr<GlobalAveragePool<float>> pool_;
  std::unique_ptr<Linear<float>> fc_;
  int fc_weight_ = 0;
  int fc_bias_ = 0;
  int64_t stem_size_ = 0;
  WorkspaceSlot stem_output_, pooled_, pooled_gradient_, logits_;
  WorkspaceSlot gradients_[3];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeResNet(
    const ModelOptions& options, int64_t batch, const LayerContext& context) {
  return ResNet::Create(options, batch, context);
}

std::vector<ConvolutionSpec> ResNetConvolutions(const ModelOptions& options,
                                                int64_t batch) {
  std::vector<ConvolutionSpec> specs = {Stem(options, batch)};
  for (const ResidualBlockOptions& block : Blocks(options, batch)) {
    specs.push_back(block.First());
    specs.push_back(block.Second());
  }
  return specs;
}

}  // namespace rivulet
