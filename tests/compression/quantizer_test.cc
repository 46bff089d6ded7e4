#include "compression/quantizer.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kMin = std::numeric_limits<float>::denorm_min();

TEST(QuantizationStepTest, IsABfloat16ThatCoversTheMaximum) {
  RandomStream rng(3, RandomPurpose::kTest);
  for (int i = 0; i < 20000; ++i) {
    const float max = std::bit_cast<float>(rng.UniformInt(0x7F800000u));
    SCOPED_TRACE(max);
    for (const int bits : {8, 16}) {
      const float step = QuantizationStep(max, bits);
      ASSERT_EQ(StepFromBits(StepToBits(step)), step);
      ASSERT_TRUE(std::isfinite(static_cast<float>(MaxLevel(bits)) * step));
      const double quotient = static_cast<double>(max) / MaxLevel(bits);
      if (max < 3e38f) {
        ASSERT_GE(step, quotient);
      }
      if (quotient > 1e-36) {
        ASSERT_LE(step, quotient * (1 + 1.0 / 128) * (1 + 1e-6));
      }
    }
  }
}

TEST(QuantizationStepTest, EdgesOfTheRange) {
  EXPECT_EQ(QuantizationStep(0, 8), 0);
  EXPECT_EQ(QuantizationStep(127, 8), 1);
  EXPECT_EQ(QuantizationStep(32767, 16), 1);
  EXPECT_GT(QuantizationStep(kMin, 8), 0);
  EXPECT_TRUE(std::isfinite(127 * QuantizationStep(kMax, 8)));
}

TEST(QuantizeDenseTest, BlocksHaveTheirOwnSteps) {
  std::vector<float> values(2 * kQuantizationBlock + 1, 0.0f);
  values[0] = 127;
  values[1] = -126.6f;
  values[2] = 0.5f;  // a tie goes to the even level
  values[2 * kQuantizationBlock] = 1e-4f;
  CompressedTensor out;
  QuantizeDense(values, 8, &out);
  EXPECT_TRUE(out.dense);
  EXPECT_EQ(out.count(), 513);
  ASSERT_EQ(out.steps.size(), 3u);
  EXPECT_EQ(out.steps[0], 1);
  EXPECT_EQ(out.steps[1], 0);
  EXPECT_EQ(out.levels[0], 127);
  EXPECT_EQ(out.levels[1], -127);
  EXPECT_EQ(out.levels[2], 0);
  EXPECT_EQ(out.Decode(300), 0);
  EXPECT_NEAR(out.Decode(512), 1e-4f, 1e-6f);
}

TEST(QuantizeDenseTest, ErrorIsAtMostHalfAStep) {
  for (const int bits : {8, 16}) {
    RandomStream rng(5, RandomPurpose::kTest);
    std::vector<float> values(1000);
    for (float& v : values) v = static_cast<float>(rng.Normal());
    CompressedTensor out;
    QuantizeDense(values, bits, &out);
    for (int64_t i = 0; i < out.size; ++i) {
      const size_t at = static_cast<size_t>(i);
      const float step = out.steps[at / kQuantizationBlock];
      ASSERT_LE(std::abs(out.levels[at]), MaxLevel(bits));
      ASSERT_LE(std::fabs(values[at] - out.Decode(i)), step * 0.5001f);
    }
  }
}

TEST(QuantizeSparseTest, ThirtyTwoBitsAreExact) {
  const std::vector<float> values = {0, 1.1f, -2e-41f, kMax};
  CompressedTensor out;
  QuantizeSparse(values, {1, 2, 3}, 32, &out);
  EXPECT_THAT(out.positions, ElementsAre(1, 2, 3));
  EXPECT_THAT(out.values, ElementsAre(1.1f, -2e-41f, kMax));
  EXPECT_THAT(out.steps, IsEmpty());
}

TEST(QuantizeSparseTest, PositionsThatQuantizeToZeroAreDropped) {
  const std::vector<float> values = {127, 0, 0.4f, -3};
  CompressedTensor out;
  QuantizeSparse(values, {0, 2, 3}, 8, &out);
  EXPECT_THAT(out.positions, ElementsAre(0, 3));
  EXPECT_THAT(out.levels, ElementsAre(127, -3));
}

TEST(QuantizeSparseTest, DenormalsStayFiniteAndInRange) {
  const std::vector<float> values = {kMin, -kMin, 1e-39f, 4e-39f};
  for (const int bits : {8, 16}) {
    CompressedTensor out;
    QuantizeSparse(values, {0, 1, 2, 3}, bits, &out);
    for (int64_t i = 0; i < out.count(); ++i) {
      const float v = values[out.positions[static_cast<size_t>(i)]];
      EXPECT_LE(std::fabs(v - out.Decode(i)), std::fabs(v));
    }
  }
}

TEST(QuantizeSparseTest, EmptySelectionIsLegal) {
  const std::vector<float> values(10, 0.0f);
  for (const int bits : {8, 16, 32}) {
    CompressedTensor out;
    out.levels = {1, 2};  // left over from the step before
    QuantizeSparse(values, {}, bits, &out);
    EXPECT_EQ(out.count(), 0);
    EXPECT_EQ(out.size, 10);
    EXPECT_THAT(out.levels, IsEmpty());
  }
}

TEST(QuantizeDenseTest, EqualValuesDecodeAlmostExactly) {
  const std::vector<float> values(700, -0.037f);
  CompressedTensor out;
  QuantizeDense(values, 8, &out);
  EXPECT_THAT(out.levels, Each(out.levels[0]));
  EXPECT_NEAR(out.Decode(0), -0.037f, 0.037f / 200);
}

}  // namespace
}  // namespace rivulet
