#include "models/mlp.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

class Mlp final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      const ModelOptions& options, int64_t batch, const LayerContext& context) {
    std::unique_ptr<Mlp> net(new Mlp(context));
    RV_RETURN_IF_ERROR(net->Build(options, batch, context));
    return net;
  }

  float* Forward(const float* images) override {
    const float* x = images;
    float* y = nullptr;
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      Layer& layer = layers_[k];
      y = workspace_.at(layer.output);
      layer.op->Forward(x, parameters_.value(layer.weight).data(),
                        parameters_.value(layer.bias).data(), y);
      if (k + 1 < layers_.size()) elementwise_.Relu(layer.output_size, y, y);
      x = y;
    }
    return y;
  }

  float* Evaluate(const float* images) override { return Forward(images); }

  void Backward(const float* images, const float* logits_gradient,
                const ReadyCallback& ready) override {
    const float* dy = logits_gradient;
    for (std::size_t k = layers_.size(); k-- > 0;) {
      Layer& layer = layers_[k];
      const float* x = k == 0 ? images : workspace_.at(layers_[k - 1].output);
      layer.op->BackwardWeights(x, dy,
                                parameters_.gradient(layer.weight).data(),
                                parameters_.gradient(layer.bias).data());
      ready(layer.bias);
      ready(layer.weight);
      if (k == 0) break;
      float* dx = workspace_.at(gradients_[k % 2]);
      layer.op->BackwardData(dy, parameters_.value(layer.weight).data(), dx);
      elementwise_.ReluBackward(layers_[k - 1].output_size, x, dx, dx);
      dy = dx;
    }
  }

 private:
  struct Layer {
    std::unique_ptr<Linear<float>> op;
    int weight = 0;
    int bias = 0;
    int64_t output_size = 0;
    WorkspaceSlot output;
  };

  explicit Mlp(const LayerContext& context)
      : elementwise_(context.backend.elementwise()),
        parameters_(context.parameters),
        workspace_(context.workspace) {}

  absl::Status Build(const ModelOptions& options, int64_t batch,
                     const LayerContext& context) {
    std::vector<int64_t> widths = options.hidden;
    widths.push_back(options.num_classes);
    LinearSpec spec;
    spec.batch = batch;
    spec.in = options.channels * options.height * options.width;
    spec.needs_input_gradient = false;  // of the images
    for (const int64_t width : widths) {
      spec.out = width;
      const std::string name = absl::StrCat("fc", layers_.size() + 1);
      Layer& layer = layers_.emplace_back();
      auto op = context.backend.MakeLinear(spec);
      RV_RETURN_IF_ERROR(Annotate(op.status(), name));
      layer.op = *std::move(op);
      layer.weight = parameters_.Find(name + ".weight");
      layer.bias = parameters_.Find(name + ".bias");
      layer.output_size = batch * width;
      layer.output = context.plan.Add(layer.output_size);
      spec.in = width;
      spec.needs_input_gradient = true;
    }
    const int64_t widest = *std::max_element(widths.begin(), widths.end());
    for (WorkspaceSlot& slot : gradients_) {
      slot = context.plan.Add(batch * widest);
    }
    return absl::OkStatus();
  }

  Elementwise<float>& elementwise_;
  Parameters& parameters_;
  Workspace& workspace_;
  std::vector<Layer> layers_;
  WorkspaceSlot gradients_[2];  // one is read while the other is written
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeMlp(const ModelOptions& options,
                                                 int64_t batch,
                                                 const LayerContext& context) {
  return Mlp::Create(options, batch, context);
}

}  // namespace rivulet
