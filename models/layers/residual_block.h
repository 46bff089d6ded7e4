// The basic block of He et al. 2016: y = relu(x' +
// norm(conv(relu(norm(conv(x)))))), x' being x or, where the block halves the
// image, its parameter-free shortcut.

#ifndef RIVULET_MODELS_LAYERS_RESIDUAL_BLOCK_H_
#define RIVULET_MODELS_LAYERS_RESIDUAL_BLOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/layers/conv_norm.h"

namespace rivulet {

struct ResidualBlockOptions {
  std::string name;  // "layer1.0"
  ActivationShape input;
  int64_t channels = 16;  // of the output
  int64_t stride = 1;     // 1 with equal channels, or 2
  NormKind norm = NormKind::kBatch;
  int64_t group_size = 8;

  // The convolutions, in order.
  ConvolutionSpec First() const;
  ConvolutionSpec Second() const;
};

// A gradient on its way back through the blocks: the sum of what came through
// the last block's convolutions and what came past them, added only where the
// sum is read anyway. Each pointer has room for the largest image.
struct BackwardBuffers {
  float* branch = nullptr;
  float* skip = nullptr;
  float* spare = nullptr;
  bool has_skip = false;  // whether `skip` is part of the sum
};

// Images are in the backend's layout. Thread-compatible.
class ResidualBlock {
 public:
  static absl::StatusOr<std::unique_ptr<ResidualBlock>> Create(
      const ResidualBlockOptions& options, const LayerContext& context);

  WorkspaceSlot output() const { return output_; }

  // Return y, in the workspace.
  float* Forward(const float* x);
  float* Evaluate(const float* x);
  // x: the input of the last Forward. Takes the gradient of y in `buffers` and
  // leaves that of x there.
  void Backward(const float* x, BackwardBuffers& buffers,
                const ReadyCallback& ready);

 private:
  ResidualBlock(const ResidualBlockOptions& options,
                const LayerContext& context);
  // x, or its shortcut.
  const float* Skip(const float* x);

  Elementwise<float>& elementwise_;
  Workspace& workspace_;
  const int64_t output_size_;
  std::unique_ptr<ConvNorm> first_, second_;
  std::unique_ptr<Shortcut<float>> shortcut_;  // null: the identity
  WorkspaceSlot hidden_, output_, skip_;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_LAYERS_RESIDUAL_BLOCK_H_
