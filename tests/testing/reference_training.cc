#include "tests/testing/reference_training.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/model.h"

namespace rivulet::testing {
namespace {

using Tensors = std::vector<std::vector<double>>;

// One step of PyTorch's SGD on parameter `index`.
void Step(const RunPlan& plan, int64_t step, int index,
          const std::vector<double>& gradient, std::vector<double>* momentum,
          absl::Span<float> weights) {
  const OptimizerConfig& optimizer = plan.config().optimizer;
  const double rate = plan.LearningRate(step);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double g = gradient[i] + plan.WeightDecay(index) * double{weights[i]};
    double& u = (*momentum)[i];
    u = optimizer.momentum * u + g;
    const double direction =
        optimizer.nesterov ? g + optimizer.momentum * u : u;
    weights[i] = static_cast<float>(weights[i] - rate * direction);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::vector<float>>> TrainReference(
    const RunPlan& plan, int64_t steps, int slices) {
  RV_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                      CreateModel(plan.model_options(), {.threads = 1}));
  InitializeModel(*model, plan.config().train.seed);
  RV_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> set,
                      OpenDataset(plan.dataset_options(), Split::kTrain));
  const BatchLoader loader(set, plan.loader_options());

  const Manifest& manifest = plan.manifest();
  Tensors gradients, momenta;
  for (const TensorSpec& spec : manifest.parameters) {
    gradients.emplace_back(spec.num_elements());
    momenta.emplace_back(spec.num_elements());
  }
  for (int64_t step = 0; step < steps; ++step) {
    for (auto& gradient : gradients)
      std::fill(gradient.begin(), gradient.end(), 0.0);
    for (int slice = 0; slice < slices; ++slice) {
      RV_ASSIGN_OR_RETURN(const Batch batch, loader.Make(step, slices, slice));
      if (batch.size() == 0) continue;
      const double share = static_cast<double>(batch.size()) /
                           static_cast<double>(plan.config().train.batch_size);
      model->Forward(batch.images, batch.labels);
      model->Backward([&](int index) {
        const absl::Span<const float> g = model->gradient(index);
        for (size_t i = 0; i < g.size(); ++i) {
          gradients[index][i] += share * double{g[i]};
        }
      });
    }
    for (size_t index = 0; index < gradients.size(); ++index) {
      Step(plan, step, static_cast<int>(index), gradients[index],
           &momenta[index], model->parameter(static_cast<int>(index)));
    }
    model->ParametersChanged();
  }

  std::vector<std::vector<float>> weights;
  for (size_t index = 0; index < gradients.size(); ++index) {
    const absl::Span<float> w = model->parameter(static_cast<int>(index));
    weights.emplace_back(w.begin(), w.end());
  }
  return weights;
}

double LargestRelativeDifference(const std::vector<std::vector<float>>& a,
                                 const std::vector<std::vector<float>>& b) {
  RV_CHECK_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    RV_CHECK_EQ(a[t].size(), b[t].size());
    double difference = 0;
    double squares = 0;
    for (size_t i = 0; i < a[t].size(); ++i) {
      const double d = double{a[t][i]} - b[t][i];
      difference += d * d;
      squares += double{b[t][i]} * b[t][i];
    }
    worst = std::max(worst, std::sqrt(difference / (squares + 1e-30)));
  }
  return worst;
}

}  // namespace rivulet::testing
