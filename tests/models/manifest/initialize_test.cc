#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "models/manifest/manifest.h"

namespace rivulet {
namespace {

constexpr uint64_t kSeed = 11;

std::vector<float> Initialize(const TensorSpec& spec, uint64_t seed = kSeed,
                              int index = 0) {
  std::vector<float> values(static_cast<size_t>(spec.num_elements()), -7.0f);
  InitializeTensor(spec, seed, index, absl::MakeSpan(values));
  return values;
}

TensorSpec Spec(Init init, int64_t elements, int64_t fan_in, int64_t fan_out) {
  return {.name = "t",
          .shape = {elements},
          .fan_in = fan_in,
          .fan_out = fan_out,
          .init = init};
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += v;
  m.mean /= static_cast<double>(values.size());
  for (const float v : values) {
    const double d = v - m.mean;
    m.variance += d * d;
    m.fourth += d * d * d * d;
  }
  m.variance /= static_cast<double>(values.size());
  m.fourth /= static_cast<double>(values.size());
  return m;
}

TEST(InitializeTest, ConstantsAreConstant) {
  EXPECT_EQ(Initialize(Spec(Init::kZero, 5, 1, 1)), std::vector<float>(5, 0));
  EXPECT_EQ(Initialize(Spec(Init::kOne, 5, 1, 1)), std::vector<float>(5, 1));
}

// With 200,000 draws the variance of a normal is known to 0.32 %, its kurtosis
// to 1.1 % (one sigma each).
TEST(InitializeTest, KaimingNormalHasItsVarianceAndShape) {
  constexpr double kVariance = 2.0 / 144;
  const Moments m =
      MomentsOf(Initialize(Spec(Init::kKaimingNormalFanOut, 200000, 27, 144)));
  EXPECT_NEAR(m.mean, 0, 4 * std::sqrt(kVariance / 200000));
  EXPECT_NEAR(m.variance, kVariance, 0.013 * kVariance);
  EXPECT_NEAR(m.fourth / (m.variance * m.variance), 3, 0.13);
}

TEST(InitializeTest, NormalNumbersAreDistributedNormally) {
  // Kolmogorov-Smirnov against the exact distribution function: with n draws
  // the distance exceeds 1.95 / sqrt(n) once in a thousand seeds.
  constexpr int kDraws = 50000;
  std::vector<float> values =
      Initialize(Spec(Init::kKaimingNormalFanOut, kDraws, 1, 2));
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double expected = 0.5 * std::erfc(-values[i] / std::sqrt(2.0));
    distance = std::max({distance, std::abs(expected - i / double{kDraws}),
                         std::abs(expected - (i + 1) / double{kDraws})});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(double{kDraws}));
}

TEST(InitializeTest, UniformFillsItsRange) {
  const std::vector<float> values =
      Initialize(Spec(Init::kUniformFanIn, 100000, 64, 10));
  const float bound = 0.125f;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -bound);
  EXPECT_LE(*most, bound);
  EXPECT_LT(*least, -0.999f * bound);
  EXPECT_GT(*most, 0.999f * bound);
  EXPECT_NEAR(MomentsOf(values).variance, bound * bound / 3, 0.0001);
}

TEST(InitializeTest, UniformValuesAreTheStreamInPlainOrder) {
  const std::vector<float> values =
      Initialize(Spec(Init::kUniformFanIn, 10, 4, 1), kSeed, 3);
  RandomStream rng(kSeed, RandomPurpose::kInitialWeights, 3);
  for (const float value : values) {
    EXPECT_EQ(value, static_cast<float>(0.5 * (2 * rng.UniformDouble() - 1)));
  }
}

// The library's log serves as the oracle: within an ulp or so of ours.
TEST(InitializeTest, NormalValuesFollowThePolarMethod) {
  const std::vector<float> values =
      Initialize(Spec(Init::kKaimingNormalFanOut, 1000, 1, 2));
  RandomStream rng(kSeed, RandomPurpose::kInitialWeights, 0);
  for (size_t i = 0; i < values.size(); i += 2) {
    double x, y, s;
    do {
      x = 2 * rng.UniformDouble() - 1;
      y = 2 * rng.UniformDouble() - 1;
      s = x * x + y * y;
    } while (s >= 1 || s == 0);
    const double scale = std::sqrt(-2 * std::log(s) / s);
    EXPECT_FLOAT_EQ(values[i], static_cast<float>(x * scale));
    EXPECT_FLOAT_EQ(values[i + 1], static_cast<float>(y * scale));
  }
}

TEST(InitializeTest, DependsOnSeedAndIndexAlone) {
  const TensorSpec spec = Spec(Init::kKaimingNormalFanOut, 50, 3, 3);
  const std::vector<float> values = Initialize(spec, 1, 2);
  EXPECT_EQ(Initialize(spec, 1, 2), values);
  EXPECT_NE(Initialize(spec, 1, 3), values);
  EXPECT_NE(Initialize(spec, 2, 2), values);
}

// Initial weights are part of every run's results: this fails when they change.
TEST(InitializeTest, ValuesStayWhatTheyAre) {
  const std::vector<float> normal =
      Initialize(Spec(Init::kKaimingNormalFanOut, 3, 1, 2), 1, 0);
  const std::vector<float> uniform =
      Initialize(Spec(Init::kUniformFanIn, 3, 1, 1), 1, 0);
  EXPECT_EQ(normal, (std::vector<float>{0x1.a11026p-4f, 0x1.eacad6p-1f,
                                        0x1.99a686p-4f}));
  EXPECT_EQ(uniform,
            (std::vector<float>{0x1.40c52p-1f, 0x1.940da8p-1f, 0x1.56f66p-4f}));
}

TEST(InitializeDeathTest, DiesOnAWrongSize) {
  std::vector<float> values(3);
  EXPECT_DEATH(InitializeTensor(Spec(Init::kZero, 4, 1, 1), 1, 0,
                                absl::MakeSpan(values)),
               "3 vs. 4");
}

}  // namespace
}  // namespace rivulet
