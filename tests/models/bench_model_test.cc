#include "models/bench_model.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

BenchOptions Short() {
  BenchOptions options;
  options.batch = 2;
  options.warm_up_steps = 1;
  options.steps = 1;
  options.repetitions = 2;
  return options;
}

TEST(BenchModelTest, MeasuresEveryPartOfAStep) {
  BenchOptions options = Short();
  options.model.height = options.model.width = 8;
  RV_ASSERT_OK_AND_ASSIGN(const BenchResult result, BenchModel(options));
  EXPECT_GT(result.images_per_second, 0);
  EXPECT_LE(result.images_per_second_min, result.images_per_second);
  EXPECT_LE(result.images_per_second_min, result.images_per_second_mean);
  EXPECT_GE(result.images_per_second_max, result.images_per_second_mean);
  EXPECT_GE(result.images_per_second_max, result.images_per_second);
  EXPECT_GT(result.forward_seconds, 0);
  EXPECT_GT(result.backward_seconds, 0);
  EXPECT_GT(result.update_seconds, 0);
  EXPECT_GT(result.conv_only_seconds, 0);
  EXPECT_GT(result.conv_only_images_per_second, 0);
  EXPECT_EQ(result.parameters, 269722);
}

TEST(BenchModelTest, CountsTheOperationsOfResNet20) {
  // By hand, multiplications of one forward pass: first layer, then stages of
  // 6, 1 + 5 and 1 + 5 convolutions, the linear layer.
  const double first = 64.0 * 16 * 27;
  const double rest = 64.0 * 6 * 16 * 144 + 16.0 * (32 * 144 + 5 * 32 * 288) +
                      4.0 * (64 * 288 + 5 * 64 * 576) + 640;
  BenchOptions options = Short();
  options.model.height = options.model.width = 8;
  RV_ASSERT_OK_AND_ASSIGN(const BenchResult result, BenchModel(options));
  EXPECT_DOUBLE_EQ(result.flops_per_image, 2 * (2 * first + 3 * rest));
}

TEST(BenchModelTest, AnMlpHasNoConvolutionBound) {
  BenchOptions options = Short();
  options.model.name = "mlp";
  options.model.hidden = {8};
  RV_ASSERT_OK_AND_ASSIGN(const BenchResult result, BenchModel(options));
  EXPECT_EQ(result.conv_only_seconds, 0);
  EXPECT_DOUBLE_EQ(result.flops_per_image, 2 * (2 * 3072.0 * 8 + 3 * 80));
}

TEST(BenchModelTest, RefusesOptionsOutOfRange) {
  BenchOptions options = Short();
  options.steps = 0;
  EXPECT_THAT(BenchModel(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("steps 0")));
  options = Short();
  options.model.name = "resnet";
  EXPECT_THAT(BenchModel(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("resnet")));
}

}  // namespace
}  // namespace rivulet
