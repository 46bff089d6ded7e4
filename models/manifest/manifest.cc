#include "models/manifest/manifest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/nearest_name.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

// Far above any real model, far below what overflows a product of two.
constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr size_t kMaxHiddenLayers = 64;
// Positions in a tensor travel as 32 bits.
constexpr int64_t kMaxTensorElements = 0xFFFFFFFF;

int64_t TotalElements(const std::vector<TensorSpec>& specs) {
  int64_t total = 0;
  for (const TensorSpec& spec : specs) total += spec.num_elements();
  return total;
}

// The names are written into Canonical() instead of the enumerators' values, so
// that the text does not depend on their order.
const char* KindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kConvolution:
      return "convolution";
    case TensorKind::kLinear:
      return "linear";
    case TensorKind::kBias:
      return "bias";
    case TensorKind::kNormScale:
      return "norm_scale";
    case TensorKind::kNormShift:
      return "norm_shift";
    case TensorKind::kRunningMean:
      return "running_mean";
    case TensorKind::kRunningVar:
      return "running_var";
  }
  return "unknown";
}

const char* InitName(Init init) {
  switch (init) {
    case Init::kZero:
      return "zero";
    case Init::kOne:
      return "one";
    case Init::kKaimingNormalFanOut:
      return "kaiming_normal_fan_out";
    case Init::kUniformFanIn:
      return "uniform_fan_in";
  }
  return "unknown";
}

void AppendCanonical(const char* section, const std::vector<TensorSpec>& specs,
                     std::string* text) {
  for (const TensorSpec& spec : specs) {
    absl::StrAppend(text, section, " \"", absl::CEscape(spec.name), "\" [",
                    absl::StrJoin(spec.shape, ","), "] ", KindName(spec.kind),
                    spec.decay ? " decay" : " no_decay",
                    " fan_in=", spec.fan_in, " fan_out=", spec.fan_out,
                    " init=", InitName(spec.init), "\n");
  }
}

// Adds a model's layers to a manifest in forward order.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(const ModelOptions& options)
      : batch_norm_(options.norm == NormKind::kBatch) {
    manifest_.model = options.name;
  }

  // Without bias: normalization follows.
  void Convolution(const std::string& name, int64_t out, int64_t in,
                   int64_t kernel) {
    const int64_t area = kernel * kernel;
    manifest_.parameters.push_back({.name = name + ".weight",
                                    .shape = {out, in, kernel, kernel},
                                    .kind = TensorKind::kConvolution,
                                    .fan_in = in * area,
                                    .fan_out = out * area,
                                    .init = Init::kKaimingNormalFanOut});
  }

  void Norm(const std::string& name, int64_t channels) {
    manifest_.parameters.push_back({.name = name + ".weight",
                                    .shape = {channels},
                                    .kind = TensorKind::kNormScale,
                                    .init = Init::kOne});
    manifest_.parameters.push_back({.name = name + ".bias",
                                    .shape = {channels},
                                    .kind = TensorKind::kNormShift,
                                    .init = Init::kZero});
    if (!batch_norm_) return;
    manifest_.buffers.push_back({.name = name + ".running_mean",
                                 .shape = {channels},
                                 .kind = TensorKind::kRunningMean,
                                 .decay = false,
                                 .init = Init::kZero});
    manifest_.buffers.push_back({.name = name + ".running_var",
                                 .shape = {channels},
                                 .kind = TensorKind::kRunningVar,
                                 .decay = false,
                                 .init = Init::kOne});
  }

  void Linear(const std::string& name, int64_t out, int64_t in) {
    manifest_.parameters.push_back({.name = name + ".weight",
                                    .shape = {out, in},
                                    .kind = TensorKind::kLinear,
                                    .fan_in = in,
                                    .fan_out = out,
                                    .init = Init::kUniformFanIn});
    manifest_.parameters.push_back({.name = name + ".bias",
                                    .shape = {out},
                                    .kind = TensorKind::kBias,
                                    .fan_in = in,
                                    .fan_out = out,
                                    .init = Init::kUniformFanIn});
  }

  Manifest Build() { return std::move(manifest_); }

 private:
  const bool batch_norm_;
  Manifest manifest_;
};

absl::Status CheckDimension(const std::string& model, absl::string_view what,
                            int64_t value, int64_t least) {
  if (value >= least && value <= kMaxDimension) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model ", model, ": ", what,
                                                 " is ", value, ", allowed is ",
                                                 least, " to ", kMaxDimension));
}

absl::Status CheckSizes(const ModelOptions& options, int64_t least_side) {
  const std::string& model = options.name;
  RV_RETURN_IF_ERROR(
      CheckDimension(model, "number of classes", options.num_classes, 2));
  RV_RETURN_IF_ERROR(
      CheckDimension(model, "channels of an image", options.channels, 1));
  RV_RETURN_IF_ERROR(
      CheckDimension(model, "height of an image", options.height, least_side));
  RV_RETURN_IF_ERROR(
      CheckDimension(model, "width of an image", options.width, least_side));
  // Each factor is at most 2^24, so the first product cannot overflow.
  const int64_t area = options.height * options.width;
  if (area > kMaxDimension || area * options.channels > kMaxDimension) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model, ": an image of ", options.channels, "x",
                     options.height, "x", options.width,
                     " is too large, allowed are ", kMaxDimension, " values"));
  }
  return absl::OkStatus();
}

// He et al. 2016 (CVPR), section 4.2, with parameter-free shortcuts (option A):
// a 3x3 convolution, three stages of n = (depth - 2) / 6 blocks with 16, 32, 64
// channels of which the last two begin with stride 2, and a linear layer.
absl::StatusOr<Manifest> BuildResNet(const ModelOptions& options) {
  // Two strides of 2 must leave something to halve.
  constexpr int64_t kLeastSide = 4;
  RV_RETURN_IF_ERROR(CheckSizes(options, kLeastSide));
  if (options.norm == NormKind::kGroup &&
      (options.group_size < 1 ||
       kResNetStageChannels[0] % options.group_size != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", options.name, ": group size is ", options.group_size,
        ", allowed are the divisors of ", kResNetStageChannels[0],
        " (the channels of the first stage): 1, 2, 4, 8, 16"));
  }
  ManifestBuilder builder(options);
  builder.Convolution("conv1", kResNetStageChannels[0], options.channels, 3);
  builder.Norm("bn1", kResNetStageChannels[0]);
  int64_t in = kResNetStageChannels[0];
  const int64_t blocks = ResNetBlocksPerStage(options.name);
  int stage = 0;
  for (const int64_t out : kResNetStageChannels) {
    ++stage;
    for (int64_t block = 0; block < blocks; ++block) {
      const std::string prefix = absl::StrCat("layer", stage, ".", block);
      builder.Convolution(prefix + ".conv1", out, in, 3);
      builder.Norm(prefix + ".bn1", out);
      builder.Convolution(prefix + ".conv2", out, out, 3);
      builder.Norm(prefix + ".bn2", out);
      in = out;
    }
  }
  builder.Linear("fc", options.num_classes, in);
  return builder.Build();
}

// Of the weights between two layers, both within kMaxDimension.
absl::Status CheckWeights(const std::string& model, int layer, int64_t in,
                          int64_t out) {
  if (in * out <= kMaxTensorElements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model ", model, ": layer ", layer, " has ", in,
                   " inputs times ", out, " outputs, allowed are at most ",
                   kMaxTensorElements, " weights a layer"));
}

absl::StatusOr<Manifest> BuildMlp(const ModelOptions& options) {
  RV_RETURN_IF_ERROR(CheckSizes(options, 1));
  if (options.hidden.size() > kMaxHiddenLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", options.name, ": ", options.hidden.size(),
                     " hidden layers, allowed are at most ", kMaxHiddenLayers));
  }
  ManifestBuilder builder(options);
  int64_t in = options.channels * options.height * options.width;
  int layer = 1;
  for (const int64_t units : options.hidden) {
    RV_RETURN_IF_ERROR(CheckDimension(
        options.name, absl::StrCat("units of hidden layer ", layer), units, 1));
    RV_RETURN_IF_ERROR(CheckWeights(options.name, layer, in, units));
    builder.Linear(absl::StrCat("fc", layer++), units, in);
    in = units;
  }
  RV_RETURN_IF_ERROR(
      CheckWeights(options.name, layer, in, options.num_classes));
  builder.Linear(absl::StrCat("fc", layer), options.num_classes, in);
  return builder.Build();
}

}  // namespace

int64_t TensorSpec::num_elements() const {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  return elements;
}

int64_t Manifest::num_parameters() const { return TotalElements(parameters); }

int64_t Manifest::num_buffer_elements() const { return TotalElements(buffers); }

std::string Manifest::Canonical() const {
  std::string text = absl::StrCat("rivulet manifest 1\nmodel \"",
                                  absl::CEscape(model), "\"\n");
  AppendCanonical("parameter", parameters, &text);
  AppendCanonical("buffer", buffers, &text);
  return text;
}

int64_t ResNetBlocksPerStage(const std::string& model) {
  int64_t depth = 0;
  RV_CHECK(absl::SimpleAtoi(absl::StripPrefix(model, "resnet"), &depth) &&
           depth > 2 && (depth - 2) % 6 == 0)
      << model << " is not a ResNet";
  return (depth - 2) / 6;
}

const std::vector<std::string>& BuiltInModels() {
  static const auto* const kModels = new std::vector<std::string>{
      "resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "mlp"};
  return *kModels;
}

absl::StatusOr<Manifest> BuildManifest(const ModelOptions& options) {
  const std::vector<std::string>& known = BuiltInModels();
  if (std::find(known.begin(), known.end(), options.name) == known.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown model \"", absl::CEscape(options.name),
                     "\" (did you mean \"", NearestName(options.name, known),
                     "\"?); known are ", absl::StrJoin(known, ", ")));
  }
  if (options.name == "mlp") return BuildMlp(options);
  return BuildResNet(options);
}

}  // namespace rivulet
