// ResNets for small images: He et al. 2016, §4.2. A 3x3 convolution to 16
// channels, three stages of n basic blocks with 16, 32 and 64 channels, each
// stage after the first halving the image, global average pooling and a linear
// layer: 6n + 2 layers.

#ifndef RIVULET_MODELS_RESNET_H_
#define RIVULET_MODELS_RESNET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "models/layers/network.h"

namespace rivulet {

// `options` passed BuildManifest and names a ResNet; `context.parameters` has
// that manifest. Errors: those of the backend.
absl::StatusOr<std::unique_ptr<Network>> MakeResNet(
    const ModelOptions& options, int64_t batch, const LayerContext& context);

// All convolutions of the network, in forward order.
std::vector<ConvolutionSpec> ResNetConvolutions(const ModelOptions& options,
                                                int64_t batch);

}  // namespace rivulet

#endif  // RIVULET_MODELS_RESNET_H_
