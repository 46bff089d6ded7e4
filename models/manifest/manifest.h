// The list of a model's tensors: what a shard must know of a model without
// linking a kernel. Names, order and layouts are PyTorch's, so that what is
// trained opens there. Everybody computes the initial weights from the manifest
// and the seed; nothing is sent but a hash of Canonical().
//
//   RV_ASSIGN_OR_RETURN(Manifest manifest, BuildManifest(options));
//   for (const TensorSpec& t : manifest.parameters) ...

#ifndef RIVULET_MODELS_MANIFEST_MANIFEST_H_
#define RIVULET_MODELS_MANIFEST_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rivulet {

enum class TensorKind {
  kConvolution,  // [out, in, height, width]
  kLinear,       // [out, in]
  kBias,         // [out]
  kNormScale,    // [channels]
  kNormShift,    // [channels]
  kRunningMean,  // buffer, [channels]
  kRunningVar,   // buffer, [channels]
};

// How a tensor's first values are drawn.
enum class Init {
  kZero,
  kOne,
  kKaimingNormalFanOut,  // N(0, 2 / fan_out), He et al. 2015
  kUniformFanIn,         // U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's Linear
};

struct TensorSpec {
  std::string name;            // "layer1.0.conv1.weight"
  std::vector<int64_t> shape;  // PyTorch's order, row major
  TensorKind kind = TensorKind::kLinear;
  bool decay = true;    // whether weight decay applies
  int64_t fan_in = 1;   // inputs of one output
  int64_t fan_out = 1;  // outputs that one input reaches
  Init init = Init::kZero;

  int64_t num_elements() const;
  // One-dimensional tensors are "small": they travel dense and quantized.
  bool is_small() const { return shape.size() < 2; }
};

struct Manifest {
  std::string model;
  std::vector<TensorSpec> parameters;  // in forward order
  std::vector<TensorSpec> buffers;     // running statistics; not trained

  int64_t num_parameters() const;  // sum of num_elements over `parameters`
  int64_t num_buffer_elements() const;
  // A text that differs whenever anything above does; hashed into the
  // handshake.
  std::string Canonical() const;
};

enum class NormKind { kBatch, kGroup };

// What selects a built-in model. Immutable value.
struct ModelOptions {
  // resnet20 | resnet32 | resnet44 | resnet56 | resnet110 | mlp
  std::string name = "resnet20";
  int64_t num_classes = 10;
  int64_t channels = 3;  // of an input image
  int64_t height = 32;
  int64_t width = 32;
  NormKind norm = NormKind::kBatch;  // ResNets only
  int64_t group_size = 8;            // channels in a group, for kGroup
  std::vector<int64_t> hidden = {128,
                                 64};  // mlp only: units of the hidden layers
};

// Channels of a ResNet's three stages; the first one's are the stem's, too.
inline constexpr int64_t kResNetStageChannels[] = {16, 32, 64};
// Residual blocks of each stage of `model`, which is a built-in ResNet: n of
// its 6n + 2 layers.
int64_t ResNetBlocksPerStage(const std::string& model);

// The names that BuildManifest takes.
const std::vector<std::string>& BuiltInModels();

// InvalidArgument for an unknown name (naming the nearest known one) or sizes
// that the model cannot take.
absl::StatusOr<Manifest> BuildManifest(const ModelOptions& options);

// Fills `values` (spec.num_elements() of them) with the initial weights of
// parameter or buffer number `index`. A pure function of its arguments; equal
// on all machines.
void InitializeTensor(const TensorSpec& spec, uint64_t seed, int index,
                      absl::Span<float> values);

}  // namespace rivulet

#endif  // RIVULET_MODELS_MANIFEST_MANIFEST_H_
