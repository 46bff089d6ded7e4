// The built-in models against PyTorch, computed in float64 by
// tests/golden/make_golden.py: logits, gradients, three steps of SGD, running
// statistics and evaluation.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/layers/network.h"
#include "models/mlp.h"
#include "models/model.h"
#include "models/resnet.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

constexpr float kLearningRate = 0.005f;

// The generator's fill(): float32 values in [low, high), a hash of the tensor's
// number and the position.
std::vector<float> Fill(uint32_t tensor, int64_t count, double low,
                        double high) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = (static_cast<uint32_t>(i) + 1u) * 2654435761u;
    h ^= (tensor + 1u) * 2246822519u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    h ^= h >> 16;
    values[i] = static_cast<float>(low + (high - low) * (h / 4294967296.0));
  }
  return values;
}

std::vector<float> InitialValues(const TensorSpec& spec, int index) {
  double low = 0.9, high = 1.1;
  if (spec.shape.size() > 1) {
    high = std::sqrt(6.0 /
                     static_cast<double>(spec.num_elements() / spec.shape[0]));
    low = -high;
  } else if (spec.name.substr(spec.name.size() - 4) == "bias") {
    low = -0.1, high = 0.1;
  }
  return Fill(index, spec.num_elements(), low, high);
}

using Fixture = std::map<std::string, std::vector<double>>;

const Fixture& Golden() {
  static const Fixture* const fixture = [] {
    auto* result = new Fixture;
    std::ifstream file(RIVULET_GOLDEN_DIR "/models_pytorch.txt");
    std::string line;
    while (std::getline(file, line)) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream words(line);
      std::string key;
      words >> key;
      std::vector<double>& values = (*result)[key];
      for (double v; words >> v;) values.push_back(v);
    }
    return result;
  }();
  return *fixture;
}

struct GoldenCase {
  std::string name;
  ModelOptions options;
  int64_t batch;
  ModelRuntime::Ops ops;
};

GoldenCase ResNetCase(NormKind norm, ModelRuntime::Ops ops) {
  GoldenCase c;
  c.ops = ops;
  c.options.name = "resnet20";
  c.options.norm = norm;
  c.name = norm == NormKind::kBatch ? "resnet20_bn" : "resnet20_gn";
  c.batch = norm == NormKind::kBatch ? 4 : 3;
  if (norm == NormKind::kGroup) {
    c.options.channels = 1;
    c.options.height = c.options.width = 28;
  }
  return c;
}

GoldenCase MlpCase(ModelRuntime::Ops ops) {
  GoldenCase c;
  c.ops = ops;
  c.name = "mlp";
  c.options.name = "mlp";
  c.options.channels = 1;
  c.options.height = c.options.width = 28;
  c.options.hidden = {32, 16};
  c.batch = 5;
  return c;
}

class GoldenTest : public ::testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    const ModelOptions& o = GetParam().options;
    images_ = Fill(1000, GetParam().batch * o.channels * o.height * o.width,
                   -2.0, 2.0);
    for (int64_t n = 0; n < GetParam().batch; ++n) {
      labels_.push_back(static_cast<int32_t>(n * 3 % 10));
    }
  }

  const std::vector<double>& Expected(const std::string& key) const {
    const auto it = Golden().find(absl::StrCat(GetParam().name, ".", key));
    EXPECT_NE(it, Golden().end()) << key;
    static const std::vector<double>* const empty = new std::vector<double>;
    return it == Golden().end() ? *empty : it->second;
  }

  // The fixture has the norm of a tensor, then six entries spread over it. In
  // float32 an entry is off by some 1e-6 of what was summed for it, but a unit
  // that rounds to the other side of a ReLU's kink moves a sum by a whole term:
  // 4e-4 of the norm with one of oneDNN's instruction sets.
  void ExpectTensor(const std::string& key, absl::Span<const float> values) {
    const std::vector<double>& expected = Expected(key);
    ASSERT_EQ(expected.size(), 7u) << key;
    double squares = 0;
    for (const float v : values) squares += double{v} * v;
    EXPECT_NEAR(std::sqrt(squares), expected[0], 1e-3 * expected[0]) << key;
    for (std::size_t k = 0; k < 6; ++k) {
      EXPECT_NEAR(values[k * (values.size() - 1) / 5], expected[k + 1],
                  1e-3 * expected[0])
          << key << " sample " << k;
    }
  }

  std::unique_ptr<Model> MakeModel() {
    auto model =
        CreateModel(GetParam().options, {.threads = 1, .ops = GetParam().ops});
    EXPECT_THAT(model, testing::IsOk());
    const Manifest& manifest = (*model)->manifest();
    for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
      const int index = static_cast<int>(i);
      const auto values = InitialValues(manifest.parameters[i], index);
      std::copy(values.begin(), values.end(),
                (*model)->parameter(index).begin());
    }
    for (std::size_t i = 0; i < manifest.buffers.size(); ++i) {
      if (manifest.buffers[i].kind != TensorKind::kRunningVar) continue;
      for (float& v : (*model)->buffer(static_cast<int>(i))) v = 1;
    }
    (*model)->ParametersChanged();
    return *std::move(model);
  }

  std::vector<float> images_;
  std::vector<int32_t> labels_;
};

TEST_P(GoldenTest, LogitsAreThoseOfPyTorch) {
  const ModelOptions& options = GetParam().options;
  RV_ASSERT_OK_AND_ASSIGN(Manifest manifest, BuildManifest(options));
  Parameters parameters(manifest);
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const int index = static_cast<int>(i);
    const auto values = InitialValues(manifest.parameters[i], index);
    std::copy(values.begin(), values.end(), parameters.value(index).begin());
  }
  std::unique_ptr<Backend<float>> backend = MakeReferenceBackend<float>();
  if (GetParam().ops == ModelRuntime::Ops::kFast) {
    RV_ASSERT_OK_AND_ASSIGN(backend, MakeCpuBackend(1));
  }
  backend->BindThread();
  Workspace workspace;
  WorkspacePlan plan;
  const LayerContext context{*backend, parameters, workspace, plan};
  RV_ASSERT_OK_AND_ASSIGN(auto network,
                          options.name == "mlp"
                              ? MakeMlp(options, GetParam().batch, context)
                              : MakeResNet(options, GetParam().batch, context));
  workspace.Reserve(plan.size());
  const float* logits = network->Forward(images_.data());
  const std::vector<double>& expected = Expected("logits");
  ASSERT_EQ(static_cast<int64_t>(expected.size()), GetParam().batch * 10);
  for (std::size_t k = 0; k < expected.size(); ++k) {
    EXPECT_NEAR(logits[k], expected[k], 5e-5) << k;
  }
}

TEST_P(GoldenTest, TrainingStepsAreThoseOfPyTorch) {
  const auto model = MakeModel();
  const Manifest& manifest = model->manifest();
  const std::vector<double>& losses = Expected("losses");
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const LossResult loss = model->Forward(images_, labels_);
    EXPECT_NEAR(loss.loss_sum / static_cast<double>(loss.samples), losses[step],
                1e-4 * losses[step])
        << "step " << step;
    model->Backward([](int) {});
    for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
      const int index = static_cast<int>(i);
      if (step == 0) {
        ExpectTensor("gradient." + manifest.parameters[i].name,
                     model->gradient(index));
      }
      if (step + 1 == losses.size()) continue;
      absl::Span<float> weights = model->parameter(index);
      for (std::size_t k = 0; k < weights.size(); ++k) {
        weights[k] -= kLearningRate * model->gradient(index)[k];
      }
    }
    for (std::size_t i = 0; step == 0 && i < manifest.buffers.size(); ++i) {
      ExpectTensor("buffer." + manifest.buffers[i].name,
                   model->buffer(static_cast<int>(i)));
    }
    model->ParametersChanged();
  }
  const LossResult evaluated = model->Evaluate(images_, labels_);
  const double expected = Expected("evaluated").at(0);
  EXPECT_NEAR(evaluated.loss_sum / static_cast<double>(evaluated.samples),
              expected, 2e-4 * expected);
}

INSTANTIATE_TEST_SUITE_P(
    PyTorch, GoldenTest,
    ::testing::Values(ResNetCase(NormKind::kBatch, ModelRuntime::Ops::kFast),
                      ResNetCase(NormKind::kGroup, ModelRuntime::Ops::kFast),
                      MlpCase(ModelRuntime::Ops::kFast),
                      MlpCase(ModelRuntime::Ops::kReference)),
    [](const ::testing::TestParamInfo<GoldenCase>& p) {
      return p.param.name +
             (p.param.ops == ModelRuntime::Ops::kFast ? "_fast" : "_reference");
    });

}  // namespace
}  // namespace rivulet
