#include "models/ops/loss.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/models/ops/ops_test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ExpectGradient;
using ::rivulet::testing::RandomValues;

TEST(SoftmaxCrossEntropyTest, EqualLogitsCostTheLogarithmOfTheClasses) {
  const std::vector<float> logits(8, 3.0f);
  const std::vector<int32_t> labels = {0, 3};
  const auto result =
      SoftmaxCrossEntropy<float>(4, logits.data(), labels, nullptr);
  EXPECT_NEAR(result.loss_sum, 2 * std::log(4.0), 1e-12);
  EXPECT_EQ(result.correct, 1);  // the first of equals is chosen
}

TEST(SoftmaxCrossEntropyTest, GradientIsTheDerivativeOfTheMean) {
  auto logits = RandomValues<double>(3, 5 * 7);
  const std::vector<int32_t> labels = {0, 6, 3, 3, 1};
  std::vector<double> gradient(logits.size());
  SoftmaxCrossEntropy<double>(7, logits.data(), labels, gradient.data());
  ExpectGradient("logits", logits, gradient, [&] {
    return SoftmaxCrossEntropy<double>(7, logits.data(), labels, nullptr)
               .loss_sum /
           5;
  });
}

TEST(SoftmaxCrossEntropyTest, GradientMayReplaceTheLogits) {
  const auto logits = RandomValues<float>(3, 6);
  const std::vector<int32_t> labels = {2, 0};
  std::vector<float> apart(6), in_place = logits;
  SoftmaxCrossEntropy<float>(3, logits.data(), labels, apart.data());
  SoftmaxCrossEntropy<float>(3, in_place.data(), labels, in_place.data());
  EXPECT_EQ(in_place, apart);
}

TEST(SoftmaxCrossEntropyTest, HugeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e30f, -1e30f, 0};
  const std::vector<int32_t> right = {0}, wrong = {2};
  EXPECT_EQ(
      SoftmaxCrossEntropy<float>(3, logits.data(), right, nullptr).loss_sum, 0);
  EXPECT_NEAR(
      SoftmaxCrossEntropy<float>(3, logits.data(), wrong, nullptr).loss_sum,
      1e30, 1e24);
}

TEST(SoftmaxCrossEntropyTest, LogitsThatAreNotFiniteMakeTheLossNaN) {
  const std::vector<int32_t> labels = {0};
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> logits = {1, bad};
    EXPECT_TRUE(std::isnan(
        SoftmaxCrossEntropy<float>(2, logits.data(), labels, nullptr).loss_sum))
        << bad;
  }
}

TEST(SoftmaxCrossEntropyDeathTest, DiesIfALabelIsNoClass) {
  const std::vector<float> logits = {1, 2};
  const std::vector<int32_t> labels = {2};
  EXPECT_DEATH(SoftmaxCrossEntropy<float>(2, logits.data(), labels, nullptr),
               "label 2 of sample 0");
}

}  // namespace
}  // namespace rivulet
