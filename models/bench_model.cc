#include "models/bench_model.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "models/ops/backend.h"
#include "models/optim/sgd.h"
#include "models/resnet.h"

namespace rivulet {
namespace {

constexpr uint64_t kSeed = 1;
constexpr double kLearningRate = 0.01;
constexpr double kMomentum = 0.9;
constexpr float kWeightDecay = 1e-4f;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

absl::Status Validate(const BenchOptions& options) {
  if (options.batch < 1 || options.steps < 1 || options.repetitions < 1 ||
      options.warm_up_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bench: batch ", options.batch, ", steps ", options.steps,
                     ", repetitions ", options.repetitions,
                     " must be at least 1 and warm-up steps ",
                     options.warm_up_steps, " at least 0"));
  }
  return absl::OkStatus();
}

// Times of one step, in seconds.
struct StepTimes {
  double forward = 0;
  double backward = 0;
  double update = 0;
  double total() const { return forward + backward + update; }
};

// A model with one batch of random data.
class TrainingStep {
 public:
  TrainingStep(const BenchOptions& options, Model& model)
      : model_(model),
        images_(options.batch * options.model.channels * options.model.height *
                options.model.width),
        labels_(options.batch) {
    RandomStream rng(kSeed, RandomPurpose::kSyntheticData);
    for (float& value : images_) value = static_cast<float>(rng.Normal());
    for (int32_t& label : labels_) {
      label = static_cast<int32_t>(
          rng.UniformInt(static_cast<uint32_t>(options.model.num_classes)));
    }
    for (const TensorSpec& spec : model_.manifest().parameters) {
      optimizers_.emplace_back(spec.num_elements(),
                               SgdOptions{.momentum = kMomentum});
    }
  }

  StepTimes Run() {
    const double start = Seconds();
    model_.Forward(images_, labels_);
    const double after_forward = Seconds();
    model_.Backward([](int) {});
    const double after_backward = Seconds();
    const int count = static_cast<int>(model_.manifest().parameters.size());
    for (int i = 0; i < count; ++i) {
      const absl::Span<float> weights = model_.parameter(i);
      const absl::Span<const float> gradient = model_.gradient(i);
      decayed_.resize(weights.size());
      for (std::size_t k = 0; k < weights.size(); ++k) {
        decayed_[k] = gradient[k] + kWeightDecay * weights[k];
      }
      optimizers_[static_cast<std::size_t>(i)].Step(kLearningRate, decayed_,
                                                    weights);
    }
    model_.ParametersChanged();
    return {after_forward - start, after_backward - after_forward,
            Seconds() - after_backward};
  }

 private:
  Model& model_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
  std::vector<Sgd> optimizers_;  // one a parameter
  std::vector<float> decayed_;   // scratch
};

std::vector<ConvolutionSpec> Convolutions(const BenchOptions& options) {
  if (options.model.name == "mlp") return {};
  return ResNetConvolutions(options.model, options.batch);
}

// The convolutions of one step, each between buffers of its own shape that are
// used again by the next: nothing but the primitives is measured, and no layer
// finds its input in a colder cache than training would.
class ConvolutionsAlone {
 public:
  static absl::StatusOr<std::unique_ptr<ConvolutionsAlone>> Create(
      const BenchOptions& options) {
    auto result = std::make_unique<ConvolutionsAlone>();
    if (options.runtime.ops == ModelRuntime::Ops::kReference) {
      result->backend_ = MakeReferenceBackend<float>();
    } else {
      RV_ASSIGN_OR_RETURN(result->backend_,
                          MakeCpuBackend(options.runtime.threads));
    }
    RV_RETURN_IF_ERROR(result->Build(Convolutions(options)));
    return result;
  }

  bool empty() const { return layers_.empty(); }

  double Run() {
    backend_->BindThread();
    const double start = Seconds();
    for (Layer& layer : layers_) {
      layer.op->Forward(input_.data(), output_.data());
    }
    for (std::size_t k = layers_.size(); k-- > 0;) {
      Layer& layer = layers_[k];
      layer.op->BackwardWeights(input_.data(), output_.data(),
                                weights_gradient_.data());
      if (layer.spec.needs_input_gradient) {
        layer.op->BackwardData(output_.data(), input_.data());
      }
    }
    return Seconds() - start;
  }

 private:
  struct Layer {
    ConvolutionSpec spec;
    std::unique_ptr<Convolution<float>> op;
  };

  absl::Status Build(const std::vector<ConvolutionSpec>& specs) {
    backend_->BindThread();
    int64_t input = 0;
    int64_t output = 0;
    int64_t weights = 0;
    for (const ConvolutionSpec& spec : specs) {
      RV_ASSIGN_OR_RETURN(auto op, backend_->MakeConvolution(spec));
      const std::vector<float> values(spec.num_weights(), 0.01f);
      op->SetWeights(values.data());
      layers_.push_back({spec, std::move(op)});
      input = std::max(input, backend_->ImageSize(spec.input));
      output = std::max(output, backend_->ImageSize(spec.Output()));
      weights = std::max(weights, spec.num_weights());
    }
    input_ = AlignedBuffer<float>(input);
    output_ = AlignedBuffer<float>(output);
    weights_gradient_ = AlignedBuffer<float>(weights);
    return absl::OkStatus();
  }

  std::unique_ptr<Backend<float>> backend_;
  std::vector<Layer> layers_;
  AlignedBuffer<float> input_, output_, weights_gradient_;
};

double FlopsPerImage(const BenchOptions& options, const Manifest& manifest) {
  double flops = 0;
  for (const ConvolutionSpec& spec : Convolutions(options)) {
    flops += spec.ForwardFlops() * (spec.needs_input_gradient ? 3 : 2) /
             static_cast<double>(options.batch);
  }
  bool first = flops == 0;
  for (const TensorSpec& tensor : manifest.parameters) {
    if (tensor.kind != TensorKind::kLinear) continue;
    flops += 2.0 * static_cast<double>(tensor.num_elements()) * (first ? 2 : 3);
    first = false;
  }
  return flops;
}

}  // namespace

absl::StatusOr<BenchResult> BenchModel(const BenchOptions& options) {
  RV_RETURN_IF_ERROR(Validate(options));
  RV_ASSIGN_OR_RETURN(auto model, CreateModel(options.model, options.runtime));
  RV_ASSIGN_OR_RETURN(auto convolutions, ConvolutionsAlone::Create(options));
  InitializeModel(*model, kSeed);
  TrainingStep step(options, *model);
  for (int i = 0; i < options.warm_up_steps; ++i) step.Run();

  std::vector<double> rates, forward, backward, update, conv_only;
  double all_seconds = 0;
  for (int r = 0; r < options.repetitions; ++r) {
    double seconds = 0;
    for (int i = 0; i < options.steps; ++i) {
      const StepTimes times = step.Run();
      seconds += times.total();
      forward.push_back(times.forward);
      backward.push_back(times.backward);
      update.push_back(times.update);
    }
    all_seconds += seconds;
    rates.push_back(static_cast<double>(options.batch * options.steps) /
                    seconds);
    if (!convolutions->empty()) conv_only.push_back(convolutions->Run());
  }

  BenchResult result;
  result.images_per_second = Median(rates);
  result.images_per_second_mean =
      static_cast<double>(options.batch * options.steps * options.repetitions) /
      all_seconds;
  result.images_per_second_min = *std::min_element(rates.begin(), rates.end());
  result.images_per_second_max = *std::max_element(rates.begin(), rates.end());
  result.forward_seconds = Median(forward);
  result.backward_seconds = Median(backward);
  result.update_seconds = Median(update);
  result.flops_per_image = FlopsPerImage(options, model->manifest());
  result.parameters = model->manifest().num_parameters();
  if (!conv_only.empty()) {
    result.conv_only_seconds = Median(conv_only);
    result.conv_only_images_per_second =
        static_cast<double>(options.batch) / result.conv_only_seconds;
  }
  return result;
}

}  // namespace rivulet
