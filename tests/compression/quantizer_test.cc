#include "compression/quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Gather;
using ::rivulet::testing::NormalVector;
using ::rivulet::testing::Quantized;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kMin = std::numeric_limits<float>::denorm_min();

CompressedTensor Sparse(const std::vector<float>& values,
                        std::vector<uint32_t> positions,
                        const TensorPlan& plan) {
  Candidates selected = Gather(values, std::move(positions));
  CompressedTensor out;
  QuantizeSparse(static_cast<int64_t>(values.size()), plan, {}, &selected,
                 &out);
  EXPECT_EQ(selected.positions, out.positions);
  EXPECT_EQ(selected.values, Gather(values, out.positions).values);
  return out;
}

double SquaredError(absl::Span<const float> magnitudes,
                    absl::Span<const float> book) {
  double sum = 0;
  for (const float m : magnitudes) {
    double best = static_cast<double>(m) * m;
    for (const float b : book) {
      const double e = static_cast<double>(m) - b;
      best = std::min(best, e * e);
    }
    sum += best;
  }
  return sum;
}

TEST(QuantizationStepTest, IsABfloat16ThatCoversTheMaximum) {
  RandomStream rng(3, RandomPurpose::kTest);
  for (int i = 0; i < 20000; ++i) {
    const float max = std::bit_cast<float>(rng.UniformInt(0x7F800000u));
    SCOPED_TRACE(max);
    for (const ValueCode code :
         {ValueCode::kLinear4, ValueCode::kLinear8, ValueCode::kLinear16}) {
      const float step = QuantizationStep(max, code);
      ASSERT_EQ(StepFromBits(StepToBits(step)), step);
      ASSERT_TRUE(std::isfinite(static_cast<float>(MaxLevel(code)) * step));
      const double quotient = static_cast<double>(max) / MaxLevel(code);
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
  EXPECT_EQ(QuantizationStep(0, ValueCode::kLinear8), 0);
  EXPECT_EQ(QuantizationStep(127, ValueCode::kLinear8), 1);
  EXPECT_EQ(QuantizationStep(32767, ValueCode::kLinear16), 1);
  EXPECT_GT(QuantizationStep(kMin, ValueCode::kLinear8), 0);
  EXPECT_TRUE(std::isfinite(127 * QuantizationStep(kMax, ValueCode::kLinear8)));
}

TEST(QuantizeDenseTest, BlocksHaveTheirOwnSteps) {
  std::vector<float> values(2 * kQuantizationBlock + 1, 0.0f);
  values[0] = 127;
  values[1] = -126.6f;
  values[2] = 0.5f;  // a tie goes to the even level
  values[2 * kQuantizationBlock] = 1e-4f;
  const CompressedTensor out = Quantized(values, {1.0, 8});
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
  for (const int bits : {4, 8, 16}) {
    RandomStream rng(5, RandomPurpose::kTest);
    std::vector<float> values(1000);
    for (float& v : values) v = static_cast<float>(rng.Normal());
    const CompressedTensor out = Quantized(values, {1.0, bits});
    for (int64_t i = 0; i < out.size; ++i) {
      const size_t at = static_cast<size_t>(i);
      const float step = out.steps[at / kQuantizationBlock];
      ASSERT_LE(std::abs(out.levels[at]), MaxLevel(out.code));
      ASSERT_LE(std::fabs(values[at] - out.Decode(i)), step * 0.5001f);
    }
  }
}

TEST(QuantizeSparseTest, ThirtyTwoBitsAreExact) {
  const std::vector<float> values = {0, 1.1f, -2e-41f, kMax};
  const CompressedTensor out = Sparse(values, {1, 2, 3}, {0.5, 32});
  EXPECT_THAT(out.positions, ElementsAre(1, 2, 3));
  EXPECT_THAT(out.values, ElementsAre(1.1f, -2e-41f, kMax));
  EXPECT_THAT(out.steps, IsEmpty());
}

TEST(QuantizeSparseTest, PositionsThatQuantizeToZeroAreDropped) {
  const std::vector<float> values = {127, 0, 0.4f, -3};
  const CompressedTensor out = Sparse(values, {0, 2, 3}, {0.5, 8});
  EXPECT_THAT(out.positions, ElementsAre(0, 3));
  EXPECT_THAT(out.levels, ElementsAre(127, -3));
}

TEST(QuantizeSparseTest, DenormalsStayFiniteAndInRange) {
  const std::vector<float> values = {kMin, -kMin, 1e-39f, 4e-39f};
  for (const int bits : {1, 2, 4, 8, 16}) {
    const CompressedTensor out = Sparse(values, {0, 1, 2, 3}, {0.5, bits});
    for (int64_t i = 0; i < out.count(); ++i) {
      const float v = values[out.positions[static_cast<size_t>(i)]];
      EXPECT_LE(std::fabs(v - out.Decode(i)), std::fabs(v));
    }
  }
}

TEST(QuantizeSparseTest, EmptySelectionIsLegal) {
  const std::vector<float> values(10, 0.0f);
  for (const int bits : {1, 2, 3, 4, 8, 16, 32}) {
    CompressedTensor out;
    out.levels = {1, 2};  // left over from the step before
    Candidates none;
    QuantizeSparse(10, {0.5, bits}, {}, &none, &out);
    EXPECT_EQ(out.count(), 0);
    EXPECT_EQ(out.size, 10);
    EXPECT_THAT(out.levels, IsEmpty());
  }
}

TEST(QuantizeDenseTest, EqualValuesDecodeAlmostExactly) {
  const std::vector<float> values(700, -0.037f);
  const CompressedTensor out = Quantized(values, {1.0, 8});
  EXPECT_THAT(out.levels, Each(out.levels[0]));
  EXPECT_NEAR(out.Decode(0), -0.037f, 0.037f / 200);
}

TEST(FitBookTest, OneMagnitudeIsTheMean) {
  EXPECT_THAT(FitBook({1.0f, 2.0f, 3.0f}, 1, LevelFit::kFitted),
              ElementsAre(2.0f));
  EXPECT_THAT(FitBook({1.0f, 2.0f, 3.0f}, 1, LevelFit::kSteps),
              ElementsAre(2.0f));
}

TEST(FitBookTest, EqualMagnitudesHaveABookOfOne) {
  const std::vector<float> same(100, 0.5f);
  for (const LevelFit fit : {LevelFit::kFitted, LevelFit::kSteps}) {
    EXPECT_THAT(FitBook(same, 8, fit), ElementsAre(0.5f));
  }
}

TEST(FitBookTest, StepsAreAsWideAsTheSmallest) {
  // Cells (1, 2], (2, 3], (3, infinity), and the smallest in the first.
  EXPECT_THAT(
      FitBook({1.0f, 2.0f, 2.5f, 2.75f, 5.0f, 7.0f}, 3 + 1, LevelFit::kSteps),
      ElementsAre(1.5f, 2.625f, 6.0f));
}

// Two clusters of magnitudes are found, however unequal.
TEST(FitBookTest, FittedMagnitudesAreTheClusters) {
  std::vector<float> magnitudes(1000, 1.0f);
  magnitudes.insert(magnitudes.end(), 50, 4.0f);
  EXPECT_THAT(FitBook(magnitudes, 2, LevelFit::kFitted),
              ElementsAre(1.0f, 4.0f));
}

// The best book of two by brute force over all ways to cut the sorted list:
// Lloyd-Max may end in a worse one, but not much.
TEST(FitBookTest, FittedIsNearTheBestOfTwo) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    auto magnitudes = NormalVector(seed, 200);
    for (float& m : magnitudes) m = std::exp(m);  // heavy-tailed
    auto sorted = magnitudes;
    std::sort(sorted.begin(), sorted.end());
    double best = std::numeric_limits<double>::infinity();
    for (size_t cut = 1; cut < sorted.size(); ++cut) {
      float means[2] = {0, 0};
      for (size_t i = 0; i < sorted.size(); ++i) {
        means[i < cut ? 0 : 1] += sorted[i];
      }
      means[0] /= static_cast<float>(cut);
      means[1] /= static_cast<float>(sorted.size() - cut);
      best = std::min(best, SquaredError(magnitudes, means));
    }
    const auto book = FitBook(magnitudes, 2, LevelFit::kFitted);
    EXPECT_LE(SquaredError(magnitudes, book), 1.3 * best);
  }
}

TEST(FitBookTest, EntriesAreRisingBfloat16NumbersAboveZero) {
  for (const float scale : {1e-42f, 1e-30f, 1.0f, 1e38f}) {
    auto magnitudes = NormalVector(3, 500, scale);
    for (float& m : magnitudes) {
      m = std::min(std::fabs(m), kMax);
      if (m == 0) m = kMin;
    }
    for (const LevelFit fit : {LevelFit::kFitted, LevelFit::kSteps}) {
      for (const int most : {1, 2, 3, 4, 8}) {
        const auto book = FitBook(magnitudes, most, fit);
        ASSERT_GE(book.size(), 1u);
        ASSERT_LE(book.size(), static_cast<size_t>(most));
        float before = 0;
        for (const float b : book) {
          ASSERT_GT(b, before);
          ASSERT_TRUE(std::isfinite(b));
          ASSERT_EQ(StepFromBits(StepToBits(b)), b);
          before = b;
        }
      }
    }
  }
}

TEST(QuantizeSparseTest, OneBitIsTheSignTimesTheMean) {
  const std::vector<float> values = {3, 0, -4, 5, 0.1f};
  const auto out = Sparse(values, {0, 2, 3}, {0.5, 1});
  EXPECT_EQ(out.code, ValueCode::kBook);
  EXPECT_THAT(out.book, ElementsAre(4.0f));
  EXPECT_THAT(out.levels, ElementsAre(1, -1, 1));
  EXPECT_EQ(out.Decode(1), -4.0f);
}

// What is nearer to nothing than to the smallest magnitude would be worse off.
TEST(QuantizeSparseTest, ABookNeverMakesAnErrorLargerThanTheValue) {
  for (const int bits : {1, 2, 3, 4}) {
    for (const LevelFit fit : {LevelFit::kFitted, LevelFit::kSteps}) {
      auto values = NormalVector(7, 2000);
      for (float& v : values) v = v * v * v;
      std::vector<uint32_t> all(values.size());
      for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
      TensorPlan plan{0.5, bits};
      plan.level_fit = fit;
      const auto out = Sparse(values, all, plan);
      if (fit == LevelFit::kFitted) {
        EXPECT_LT(out.count(), 2000);
      }
      EXPECT_GT(out.count(), 100);
      for (int64_t i = 0; i < out.count(); ++i) {
        const float v = values[out.positions[static_cast<size_t>(i)]];
        ASSERT_LE(std::fabs(v - out.Decode(i)), std::fabs(v));
      }
    }
  }
}

TEST(QuantizeSparseTest, MoreBitsLoseLess) {
  auto values = NormalVector(8, 4000);
  double before = std::numeric_limits<double>::infinity();
  for (const int bits : {1, 2, 3, 4, 8, 16, 32}) {
    const auto decoded =
        rivulet::testing::Decoded(Quantized(values, {0.05, bits}));
    double error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (decoded[i] == 0) continue;
      const double e = static_cast<double>(values[i]) - decoded[i];
      error += e * e;
    }
    EXPECT_LT(error, before) << bits;
    before = error;
  }
  EXPECT_EQ(before, 0);
}

TEST(QuantizeSparseTest, AShortListHasAShortBook) {
  const auto values = NormalVector(9, 1000);
  for (const auto& [count, book] :
       {std::pair(4, 1u), std::pair(15, 1u), std::pair(16, 2u),
        std::pair(32, 4u), std::pair(64, 8u)}) {
    const double density = count / 1000.0;
    EXPECT_LE(Quantized(values, {density, 4}).book.size(), book) << count;
  }
}

// Over many draws the mean decoded value is the value, and no draw is off by
// more than a step.
TEST(StochasticRoundingTest, IsUnbiased) {
  constexpr int kDraws = 4000;
  const std::vector<float> values = {1, -0.73f, 0.41f, 0.05f, -0.002f, 0.9f};
  for (const double density : {0.9, 1.0}) {
    for (const int bits : {1, 2, 3, 4, 8, 16}) {
      if (density == 1 && bits < 4) continue;
      SCOPED_TRACE(bits);
      TensorPlan plan{density, bits};
      plan.rounding = Rounding::kStochastic;
      std::vector<double> sum(values.size(), 0);
      double step = 0;
      for (uint64_t draw = 0; draw < kDraws; ++draw) {
        const auto sent = Quantized(values, plan, {11, draw, 5});
        step = sent.code == ValueCode::kBook ? sent.book[0] : sent.steps[0];
        const auto decoded = rivulet::testing::Decoded(sent);
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_LE(std::fabs(decoded[i] - values[i]), step * 1.0001);
          sum[i] += decoded[i];
        }
      }
      // A draw's standard deviation is at most half a step: five of them.
      const double tolerance = 5 * 0.5 * step / std::sqrt(kDraws);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(sum[i] / kDraws, values[i], tolerance) << i;
      }
    }
  }
}

TEST(StochasticRoundingTest, IsAFunctionOfItsKey) {
  const auto values = NormalVector(10, 3000);
  TensorPlan plan{0.1, 2};
  plan.rounding = Rounding::kStochastic;
  const auto levels = [&](const NoiseKey& key) {
    return Quantized(values, plan, key).levels;
  };
  EXPECT_EQ(levels({1, 2, 3}), levels({1, 2, 3}));
  EXPECT_NE(levels({1, 2, 3}), levels({1, 3, 3}));
  EXPECT_NE(levels({1, 2, 3}), levels({1, 2, 4}));
  EXPECT_NE(levels({1, 2, NoiseStreamOfWorker(1, 0)}),
            levels({1, 2, NoiseStreamOfShard(1, 0)}));
}

}  // namespace
}  // namespace rivulet
