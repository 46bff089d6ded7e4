#include "models/model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "models/layers/network.h"
#include "models/mlp.h"
#include "models/ops/loss.h"
#include "models/resnet.h"

namespace rivulet {
namespace {

// Training has one or two batch sizes (uneven slices), evaluation another two.
constexpr std::size_t kMaxNetworks = 4;
// Evaluation runs in slices, so that a large batch needs no more memory than
// training does.
constexpr int64_t kEvaluationSlice = 128;

// Joins parameters, a workspace and a Network for each batch size.
class NetworkModel final : public Model {
 public:
  NetworkModel(const ModelOptions& options, Manifest manifest,
               std::unique_ptr<Backend<float>> backend)
      : options_(options),
        image_size_(options.channels * options.height * options.width),
        parameters_(std::move(manifest)),
        backend_(std::move(backend)) {}

  // Makes the network for `batch`, or finds it.
  absl::StatusOr<Network*> NetworkFor(int64_t batch) {
    for (auto it = networks_.begin(); it != networks_.end(); ++it) {
      if (it->batch == batch) {
        std::rotate(networks_.begin(), it, it + 1);  // most recent first
        return networks_.front().network.get();
      }
    }
    WorkspacePlan plan;
    const LayerContext context{*backend_, parameters_, workspace_, plan};
    RV_ASSIGN_OR_RETURN(auto network,
                        options_.name == "mlp"
                            ? MakeMlp(options_, batch, context)
                            : MakeResNet(options_, batch, context));
    workspace_.Reserve(plan.size());
    networks_.insert(networks_.begin(), {batch, std::move(network)});
    if (networks_.size() > kMaxNetworks) networks_.pop_back();
    return networks_.front().network.get();
  }

  const Manifest& manifest() const override { return parameters_.manifest(); }
  std::string ops() const override { return backend_->name(); }
  absl::Span<float> parameter(int index) override {
    return parameters_.value(index);
  }
  absl::Span<const float> gradient(int index) const override {
    return parameters_.gradient(index);
  }
  AlignedBuffer<float>& gradient_buffer(int index) override {
    return parameters_.gradient_buffer(index);
  }
  absl::Span<float> buffer(int index) override {
    return parameters_.buffer(index);
  }
  void ParametersChanged() override { parameters_.Changed(); }

  LossResult Forward(absl::Span<const float> images,
                     absl::Span<const int32_t> labels) override {
    CheckSizes(images, labels);
    backend_->BindThread();
    Network& network = Require(labels.size());
    // The backward pass reads the images again; the caller may have let go.
    if (images_.size() < static_cast<int64_t>(images.size())) {
      images_ = AlignedBuffer<float>(static_cast<int64_t>(images.size()));
    }
    std::copy(images.begin(), images.end(), images_.data());
    float* logits = network.Forward(images_.data());
    forward_ = &network;
    logits_gradient_ = logits;
    return ToResult(
        SoftmaxCrossEntropy(options_.num_classes, logits, labels, logits),
        labels);
  }

  void Backward(const std::function<void(int)>& ready) override {
    RV_CHECK(forward_ != nullptr) << "Backward needs a Forward just before it";
    backend_->BindThread();
    forward_->Backward(images_.data(), logits_gradient_, ready);
    forward_ = nullptr;  // its activations may be gone after the next pass
  }

  LossResult Evaluate(absl::Span<const float> images,
                      absl::Span<const int32_t> labels) override {
    CheckSizes(images, labels);
    backend_->BindThread();
    forward_ = nullptr;
    LossResult total;
    const int64_t samples = static_cast<int64_t>(labels.size());
    for (int64_t begin = 0; begin < samples; begin += kEvaluationSlice) {
      const int64_t n = std::min(kEvaluationSlice, samples - begin);
      const auto slice = labels.subspan(begin, n);
      const float* logits =
          Require(n).Evaluate(images.data() + begin * image_size_);
      const LossResult part =
          ToResult(SoftmaxCrossEntropy<float>(options_.num_classes, logits,
                                              slice, nullptr),
                   slice);
      total.loss_sum += part.loss_sum;
      total.correct += part.correct;
      total.samples += part.samples;
    }
    return total;
  }

  void BeginStatistics() override { parameters_.BeginStatistics(); }
  void EndStatistics() override { parameters_.EndStatistics(); }

 private:
  struct Entry {
    int64_t batch;
    std::unique_ptr<Network> network;
  };

  void CheckSizes(absl::Span<const float> images,
                  absl::Span<const int32_t> labels) const {
    RV_CHECK(!labels.empty()) << "a batch needs samples";
    RV_CHECK_EQ(static_cast<int64_t>(images.size()),
                static_cast<int64_t>(labels.size()) * image_size_)
        << "images and labels of one batch";
  }

  // The shapes were validated when the model was made, so a batch size that
  // fails is a bug.
  Network& Require(std::size_t batch) {
    const auto network = NetworkFor(static_cast<int64_t>(batch));
    RV_CHECK(network.ok()) << options_.name << " with batch " << batch << ": "
                           << network.status().ToString();
    return **network;
  }

  static LossResult ToResult(const CrossEntropyResult& loss,
                             absl::Span<const int32_t> labels) {
    return {loss.loss_sum, loss.correct, static_cast<int64_t>(labels.size())};
  }

  const ModelOptions options_;
  const int64_t image_size_;
  Parameters parameters_;
  const std::unique_ptr<Backend<float>> backend_;
  Workspace workspace_;
  std::vector<Entry> networks_;  // most recently used first
  AlignedBuffer<float> images_;  // of the last Forward
  Network* forward_ = nullptr;   // whose Backward may be called; in networks_
  const float* logits_gradient_ = nullptr;
};

absl::StatusOr<std::unique_ptr<Backend<float>>> MakeBackend(
    const ModelRuntime& runtime) {
  if (runtime.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("model threads is ", runtime.threads, ", allowed: >= 1"));
  }
  if (runtime.ops == ModelRuntime::Ops::kReference) {
    return MakeReferenceBackend<float>();
  }
  return MakeCpuBackend(runtime.threads);
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelOptions& options,
                                                 const ModelRuntime& runtime) {
  RV_ASSIGN_OR_RETURN(Manifest manifest, BuildManifest(options));
  RV_ASSIGN_OR_RETURN(auto backend, MakeBackend(runtime));
  backend->BindThread();
  auto model = std::make_unique<NetworkModel>(options, std::move(manifest),
                                              std::move(backend));
  // What the backend lacks shows here rather than at the first step.
  RV_RETURN_IF_ERROR(Annotate(model->NetworkFor(1).status(), options.name));
  return model;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateModel(
    const ModelOptions& options, const ModelRuntime& runtime) {
  auto model = MakeModel(options, runtime);
  if (!absl::IsUnimplemented(model.status())) return model;
  return MakeModel(options, {.threads = runtime.threads,
                             .ops = ModelRuntime::Ops::kReference});
}

void InitializeModel(Model& model, uint64_t seed) {
  const Manifest& manifest = model.manifest();
  const int parameters = static_cast<int>(manifest.parameters.size());
  for (int i = 0; i < parameters; ++i) {
    InitializeTensor(manifest.parameters[i], seed, i, model.parameter(i));
  }
  for (int i = 0; i < static_cast<int>(manifest.buffers.size()); ++i) {
    InitializeTensor(manifest.buffers[i], seed, parameters + i,
                     model.buffer(i));
  }
  model.ParametersChanged();
}

}  // namespace rivulet
