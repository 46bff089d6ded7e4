#include "models/layers/parameters.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;

Manifest TwoTensors() {
  Manifest manifest;
  TensorSpec weight;
  weight.name = "conv1.weight";
  weight.shape = {2, 1, 3, 3};
  TensorSpec scale;
  scale.name = "bn1.weight";
  scale.shape = {2};
  TensorSpec mean = scale;
  mean.name = "bn1.running_mean";
  TensorSpec variance = scale;
  variance.name = "bn1.running_var";
  manifest.parameters = {weight, scale};
  manifest.buffers = {mean, variance};
  return manifest;
}

TEST(ParametersTest, TensorsAreZeroAndDoNotOverlap) {
  Parameters parameters(TwoTensors());
  EXPECT_EQ(parameters.value(0).size(), 18u);
  EXPECT_THAT(parameters.value(0), Each(0.0f));
  for (float& v : parameters.value(0)) v = 1;
  for (float& v : parameters.gradient(1)) v = 2;
  EXPECT_THAT(parameters.value(1), Each(0.0f));
  EXPECT_THAT(parameters.gradient(0), Each(0.0f));
  EXPECT_THAT(parameters.buffer(0), Each(0.0f));
}

TEST(ParametersTest, FindsTensorsByName) {
  const Parameters parameters(TwoTensors());
  EXPECT_EQ(parameters.Find("bn1.weight"), 1);
  EXPECT_EQ(parameters.FindBuffer("bn1.running_var"), 1);
}

TEST(ParametersDeathTest, DiesIfATensorDoesNotExist) {
  const Parameters parameters(TwoTensors());
  EXPECT_DEATH(parameters.Find("fc.weight"), "no tensor fc.weight");
}

TEST(ParametersTest, RunningStatisticsMoveByATenthToTheUnbiasedVariance) {
  Parameters parameters(TwoTensors());
  for (float& v : parameters.buffer(1)) v = 1;
  const std::vector<float> mean = {2, -4}, variance = {3, 6};
  parameters.RecordStatistics(0, 1, mean, variance, 4);  // factor 4 / 3
  EXPECT_THAT(parameters.buffer(0), ElementsAre(FloatEq(0.2f), FloatEq(-0.4f)));
  EXPECT_THAT(parameters.buffer(1), ElementsAre(FloatEq(1.3f), FloatEq(1.7f)));
}

TEST(ParametersTest, OneValueAChannelKeepsItsBiasedVariance) {
  Parameters parameters(TwoTensors());
  const std::vector<float> mean = {1, 1}, variance = {0, 0};
  parameters.RecordStatistics(0, 1, mean, variance, 1);
  EXPECT_THAT(parameters.buffer(1), Each(0.0f));
}

TEST(ParametersTest, GatheredStatisticsArePlainMeans) {
  Parameters parameters(TwoTensors());
  for (float& v : parameters.buffer(0)) v = 7;
  parameters.BeginStatistics();
  const std::vector<float> mean_a = {1, 2}, variance_a = {1, 2};
  const std::vector<float> mean_b = {3, 6}, variance_b = {3, 4};
  parameters.RecordStatistics(0, 1, mean_a, variance_a, 2);  // factor 2
  parameters.RecordStatistics(0, 1, mean_b, variance_b, 3);  // factor 3 / 2
  EXPECT_THAT(parameters.buffer(0), Each(7.0f)) << "changed before the end";
  parameters.EndStatistics();
  EXPECT_THAT(parameters.buffer(0), ElementsAre(2, 4));
  EXPECT_THAT(parameters.buffer(1), ElementsAre(3.25f, 5));
  // Afterwards they move by tenths again.
  parameters.RecordStatistics(0, 1, mean_a, variance_a, 2);
  EXPECT_THAT(parameters.buffer(0), ElementsAre(FloatEq(1.9f), FloatEq(3.8f)));
}

TEST(ParametersTest, GatheringNothingChangesNothing) {
  Parameters parameters(TwoTensors());
  for (float& v : parameters.buffer(0)) v = 7;
  parameters.BeginStatistics();
  parameters.EndStatistics();
  EXPECT_THAT(parameters.buffer(0), Each(7.0f));
}

TEST(ParametersTest, EveryChangeGivesANewVersion) {
  Parameters parameters(TwoTensors());
  const int64_t before = parameters.version();
  parameters.Changed();
  EXPECT_GT(parameters.version(), before);
}

}  // namespace
}  // namespace rivulet
