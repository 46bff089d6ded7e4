// A convolution followed by a normalization, with or without a ReLU: the unit
// that ResNets are made of.

#ifndef RIVULET_MODELS_LAYERS_CONV_NORM_H_
#define RIVULET_MODELS_LAYERS_CONV_NORM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/layers/network.h"

namespace rivulet {

struct ConvNormOptions {
  std::string convolution_name;  // "layer1.0.conv1"
  std::string norm_name;         // "layer1.0.bn1"
  ConvolutionSpec convolution;
  NormKind norm = NormKind::kBatch;
  int64_t group_size = 8;
  bool relu = true;
};

// Images are in the backend's layout. Thread-compatible.
class ConvNorm {
 public:
  // Errors: those of the backend's factories, with the layer's name.
  static absl::StatusOr<std::unique_ptr<ConvNorm>> Create(
      const ConvNormOptions& options, const LayerContext& context);

  void Forward(const float* x, float* y);
  void Evaluate(const float* x, float* y);
  // dy: gradient of y. Overwrites `inner`, which may be dy, with the gradient
  // of the convolution's output, and, unless `dx` is null, dx with the gradient
  // of x. Announces shift, scale, and, before it goes on to dx, the weights.
  void Backward(const float* x, const float* y, const float* dy, float* inner,
                float* dx, const ReadyCallback& ready);

 private:
  ConvNorm(const ConvNormOptions& options, const LayerContext& context,
           std::unique_ptr<Convolution<float>> convolution,
           std::unique_ptr<Normalization<float>> normalization);
  void PackWeights();

  Parameters& parameters_;
  Workspace& workspace_;
  const std::unique_ptr<Convolution<float>> convolution_;
  const std::unique_ptr<Normalization<float>> normalization_;
  const int64_t values_per_channel_;
  const WorkspaceSlot convolved_;
  const int weight_, scale_, shift_;  // parameters
  int running_mean_ = -1;             // buffers; -1 without batch norm
  int running_variance_ = -1;
  int64_t packed_version_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_LAYERS_CONV_NORM_H_
