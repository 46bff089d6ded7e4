// Whole models: the fast operations against the reference ones, the contract of
// model.h, determinism.

#include "models/model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

struct Batch {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

Batch RandomBatch(const ModelOptions& options, int64_t n, uint64_t seed) {
  RandomStream rng(seed, RandomPurpose::kTest);
  Batch batch;
  batch.images.resize(n * options.channels * options.height * options.width);
  for (float& v : batch.images) v = static_cast<float>(rng.Normal());
  for (int64_t i = 0; i < n; ++i) {
    batch.labels.push_back(static_cast<int32_t>(
        rng.UniformInt(static_cast<uint32_t>(options.num_classes))));
  }
  return batch;
}

std::unique_ptr<Model> Make(const ModelOptions& options,
                            ModelRuntime::Ops ops = ModelRuntime::Ops::kFast,
                            int threads = 1) {
  auto model = CreateModel(options, {.threads = threads, .ops = ops});
  EXPECT_THAT(model, testing::IsOk());
  InitializeModel(**model, 17);
  return *std::move(model);
}

// Small images: a ResNet-20's reference pass takes milliseconds.
ModelOptions SmallResNet(NormKind norm = NormKind::kBatch) {
  ModelOptions options;
  options.norm = norm;
  options.height = 12;
  options.width = 8;
  options.num_classes = 5;
  return options;
}

ModelOptions SmallMlp() {
  ModelOptions options;
  options.name = "mlp";
  options.channels = 1;
  options.height = 6;
  options.width = 5;
  options.hidden = {17, 8};
  options.num_classes = 5;
  return options;
}

std::vector<int> AllReady(Model& model) {
  std::vector<int> order;
  model.Backward([&](int i) { order.push_back(i); });
  return order;
}

void SgdStep(Model& model, float learning_rate) {
  for (int i = 0; i < static_cast<int>(model.manifest().parameters.size());
       ++i) {
    absl::Span<float> weights = model.parameter(i);
    for (std::size_t k = 0; k < weights.size(); ++k) {
      weights[k] -= learning_rate * model.gradient(i)[k];
    }
  }
  model.ParametersChanged();
}

// All parameters and buffers after some training steps.
std::vector<float> Train(Model& model, const ModelOptions& options, int steps,
                         std::vector<int64_t> batches) {
  for (int step = 0; step < steps; ++step) {
    const Batch batch =
        RandomBatch(options, batches[step % batches.size()], 100 + step);
    model.Forward(batch.images, batch.labels);
    model.Backward([](int) {});
    SgdStep(model, 0.05f);
  }
  std::vector<float> all;
  const Manifest& manifest = model.manifest();
  for (int i = 0; i < static_cast<int>(manifest.parameters.size()); ++i) {
    const auto values = model.parameter(i);
    all.insert(all.end(), values.begin(), values.end());
  }
  for (int i = 0; i < static_cast<int>(manifest.buffers.size()); ++i) {
    const auto values = model.buffer(i);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

class BuiltInModelTest : public ::testing::TestWithParam<ModelOptions> {};

// Each layer adds roundings of 6e-8 and normalization divides by small standard
// deviations: about 1e-5 of a tensor's largest entry remain after 20 layers. A
// unit whose input rounds to the other side of a ReLU's kink would add more;
// the seeds here have none.
TEST_P(BuiltInModelTest, FastAgreesWithReference) {
  const ModelOptions options = GetParam();
  const auto fast = Make(options);
  const auto slow = Make(options, ModelRuntime::Ops::kReference);
  for (const int64_t n : {3, 1, 2}) {
    SCOPED_TRACE(n);
    const Batch batch = RandomBatch(options, n, 5 + n);
    const LossResult a = fast->Forward(batch.images, batch.labels);
    const LossResult b = slow->Forward(batch.images, batch.labels);
    EXPECT_NEAR(a.loss_sum, b.loss_sum, 2e-5 * (1 + b.loss_sum));
    EXPECT_EQ(a.correct, b.correct);
    EXPECT_EQ(a.samples, n);
    fast->Backward([](int) {});
    slow->Backward([](int) {});
    const Manifest& manifest = fast->manifest();
    for (int i = 0; i < static_cast<int>(manifest.parameters.size()); ++i) {
      const auto expected = slow->gradient(i);
      float largest = 0;
      for (const float v : expected) largest = std::max(largest, std::abs(v));
      for (std::size_t k = 0; k < expected.size(); ++k) {
        ASSERT_NEAR(fast->gradient(i)[k], expected[k], 1e-6 + 2e-4 * largest)
            << manifest.parameters[i].name << "[" << k << "]";
      }
    }
    const LossResult c = fast->Evaluate(batch.images, batch.labels);
    const LossResult d = slow->Evaluate(batch.images, batch.labels);
    EXPECT_NEAR(c.loss_sum, d.loss_sum, 1e-4 * (1 + d.loss_sum));
  }
}

TEST_P(BuiltInModelTest, EveryGradientIsAnnouncedOnceLastFirst) {
  const ModelOptions options = GetParam();
  const auto model = Make(options);
  const Batch batch = RandomBatch(options, 2, 1);
  model->Forward(batch.images, batch.labels);
  std::vector<int> expected(model->manifest().parameters.size());
  std::iota(expected.rbegin(), expected.rend(), 0);
  EXPECT_EQ(AllReady(*model), expected);
}

TEST_P(BuiltInModelTest, AnnouncedGradientsAreFinal) {
  const ModelOptions options = GetParam();
  const auto model = Make(options);
  const Batch batch = RandomBatch(options, 2, 1);
  model->Forward(batch.images, batch.labels);
  std::vector<std::vector<float>> seen(model->manifest().parameters.size());
  model->Backward([&](int i) {
    seen[i].assign(model->gradient(i).begin(), model->gradient(i).end());
  });
  for (int i = 0; i < static_cast<int>(seen.size()); ++i) {
    EXPECT_THAT(model->gradient(i), ::testing::ElementsAreArray(seen[i]))
        << model->manifest().parameters[i].name;
  }
}

TEST_P(BuiltInModelTest, TwoRunsGiveTheSameBits) {
  const ModelOptions options = GetParam();
  for (const int threads : {1, 2}) {
    const auto a = Make(options, ModelRuntime::Ops::kFast, threads);
    const auto b = Make(options, ModelRuntime::Ops::kFast, threads);
    EXPECT_EQ(Train(*a, options, 3, {5, 4}), Train(*b, options, 3, {5, 4}))
        << threads << " threads";
  }
}

TEST_P(BuiltInModelTest, ABatchSizeBetweenChangesNothing) {
  const ModelOptions options = GetParam();
  const auto a = Make(options);
  const auto b = Make(options);
  const Batch batch = RandomBatch(options, 4, 1);
  for (const int64_t n : {1, 2, 3, 5, 6, 7}) {  // more than are kept
    const Batch other = RandomBatch(options, n, n);
    b->Evaluate(other.images, other.labels);
  }
  for (Model* model : {a.get(), b.get()}) {
    model->Forward(batch.images, batch.labels);
    model->Backward([](int) {});
  }
  for (int i = 0; i < static_cast<int>(a->manifest().parameters.size()); ++i) {
    ASSERT_EQ(a->gradient(i), b->gradient(i));
  }
}

TEST_P(BuiltInModelTest, TrainingLearnsABatchByHeart) {
  const ModelOptions options = GetParam();
  const auto model = Make(options);
  const Batch batch = RandomBatch(options, 4, 1);
  const double first = model->Forward(batch.images, batch.labels).loss_sum;
  const int steps = options.name == "mlp" ? 500 : 20;
  for (int step = 0; step < steps; ++step) {
    model->Forward(batch.images, batch.labels);
    model->Backward([](int) {});
    SgdStep(*model, 0.05f);
  }
  const LossResult last = model->Forward(batch.images, batch.labels);
  EXPECT_LT(last.loss_sum, 0.3 * first);
  EXPECT_EQ(last.correct, 4);
}

INSTANTIATE_TEST_SUITE_P(
    Models, BuiltInModelTest,
    ::testing::Values(SmallResNet(), SmallResNet(NormKind::kGroup), SmallMlp()),
    [](const ::testing::TestParamInfo<ModelOptions>& p) {
      if (p.param.name == "mlp") return std::string("Mlp");
      return std::string(p.param.norm == NormKind::kBatch ? "BatchNorm"
                                                          : "GroupNorm");
    });

TEST(ModelTest, DeeperResNetsAreBuilt) {
  for (const char* name : {"resnet32", "resnet44", "resnet56", "resnet110"}) {
    ModelOptions options = SmallResNet();
    options.name = name;
    options.height = options.width = 4;
    const auto model = Make(options);
    const Batch batch = RandomBatch(options, 2, 1);
    EXPECT_TRUE(
        std::isfinite(model->Forward(batch.images, batch.labels).loss_sum));
    EXPECT_EQ(AllReady(*model).size(), model->manifest().parameters.size())
        << name;
  }
}

TEST(ModelTest, ResNet20HasThePublishedNumberOfParameters) {
  EXPECT_EQ(Make(ModelOptions{})->manifest().num_parameters(), 269722);
}

TEST(ModelTest, WrongOptionsAreRefused) {
  ModelOptions options;
  options.name = "resnet21";
  EXPECT_THAT(
      CreateModel(options, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("resnet21")));
  EXPECT_THAT(
      CreateModel(ModelOptions{}, {.threads = 0}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("threads is 0")));
}

TEST(ModelTest, ImagesMayEndBeforeTheBackwardPass) {
  const ModelOptions options = SmallMlp();
  const auto kept = Make(options);
  const auto gone = Make(options);
  Batch batch = RandomBatch(options, 3, 1);
  kept->Forward(batch.images, batch.labels);
  gone->Forward(batch.images, batch.labels);
  kept->Backward([](int) {});
  std::fill(batch.images.begin(), batch.images.end(), 1e30f);
  gone->Backward([](int) {});
  EXPECT_EQ(kept->gradient(0), gone->gradient(0));
}

TEST(ModelTest, EvaluationAddsUpOverSlicesAndChangesNothing) {
  ModelOptions options = SmallResNet();
  options.height = options.width = 4;
  const auto model = Make(options);
  Train(*model, options, 2, {8});
  const auto before = Train(*model, options, 0, {1});
  const Batch batch = RandomBatch(options, 300, 1);
  const LossResult whole = model->Evaluate(batch.images, batch.labels);
  LossResult parts;
  const int64_t image = 3 * 4 * 4;
  for (int64_t begin = 0; begin < 300; begin += 100) {
    const LossResult part = model->Evaluate(
        absl::MakeSpan(batch.images).subspan(begin * image, 100 * image),
        absl::MakeSpan(batch.labels).subspan(begin, 100));
    parts.loss_sum += part.loss_sum;
    parts.correct += part.correct;
    parts.samples += part.samples;
  }
  EXPECT_NEAR(whole.loss_sum, parts.loss_sum, 1e-4);
  EXPECT_EQ(whole.correct, parts.correct);
  EXPECT_EQ(whole.samples, 300);
  EXPECT_EQ(Train(*model, options, 0, {1}), before);
}

// With the statistics estimated on one batch, evaluating that batch normalizes
// as training on it does, but for the unbiased variance.
TEST(ModelTest, EstimatedStatisticsAreThoseOfTheBatches) {
  const ModelOptions options = SmallResNet();
  const auto model = Make(options);
  const Batch batch = RandomBatch(options, 24, 1);
  const double far = model->Evaluate(batch.images, batch.labels).loss_sum;
  model->BeginStatistics();
  const double trained = model->Forward(batch.images, batch.labels).loss_sum;
  model->Forward(batch.images, batch.labels);
  model->EndStatistics();
  const double evaluated = model->Evaluate(batch.images, batch.labels).loss_sum;
  EXPECT_NEAR(evaluated, trained, 1e-2 * trained);
  EXPECT_GT(std::abs(far - trained), 5e-2 * trained);
}

TEST(ModelTest, NumbersThatAreNotFiniteShowInTheLossOrTheGradient) {
  for (const ModelOptions& options :
       {SmallResNet(), SmallResNet(NormKind::kGroup), SmallMlp()}) {
    const auto model = Make(options);
    Batch batch = RandomBatch(options, 2, 1);
    batch.images[7] = std::nanf("");
    bool finite =
        std::isfinite(model->Forward(batch.images, batch.labels).loss_sum);
    model->Backward([&](int i) {
      for (const float g : model->gradient(i)) finite &= std::isfinite(g);
    });
    EXPECT_FALSE(finite) << options.name;
  }
}

TEST(ModelTest, ModelsInSeveralThreadsDoNotDisturbEachOther) {
  const ModelOptions options = SmallResNet();
  const auto alone = Train(*Make(options), options, 3, {4});
  // One of the models was made in another thread than it runs in.
  const auto made_here = Make(options);
  std::vector<std::vector<float>> results(3);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        results[t] = t == 0 ? Train(*made_here, options, 3, {4})
                            : Train(*Make(options), options, 3, {4});
      });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, alone);
}

TEST(ModelDeathTest, DiesIfBackwardComesWithoutForward) {
  const ModelOptions options = SmallMlp();
  const auto model = Make(options);
  const Batch batch = RandomBatch(options, 1, 1);
  model->Forward(batch.images, batch.labels);
  model->Evaluate(batch.images, batch.labels);
  EXPECT_DEATH(model->Backward([](int) {}), "Backward needs a Forward");
}

TEST(ModelDeathTest, DiesIfImagesAndLabelsDiffer) {
  const ModelOptions options = SmallMlp();
  const auto model = Make(options);
  Batch batch = RandomBatch(options, 2, 1);
  batch.labels.pop_back();
  EXPECT_DEATH(model->Forward(batch.images, batch.labels),
               "images and labels of one batch");
}

}  // namespace
}  // namespace rivulet
