#include "compression/selector.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "compression/gradient_compressor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Gather;
using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::VectorCompressor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The definition, by sorting.
std::vector<uint32_t> SelectBySorting(absl::Span<const float> values,
                                      int64_t count) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(count)));
  std::erase_if(order, [&](uint32_t p) { return values[p] == 0; });
  std::sort(order.begin(), order.end());
  return order;
}

// Laplace-distributed, of scale 1.
float Laplace(RandomStream& rng) {
  const double x = rng.UniformDouble() - 0.5;
  return static_cast<float>(-std::copysign(1.0, x) *
                            std::log(1 - 2 * std::fabs(x) + 1e-12));
}

std::vector<float> LaplaceVector(uint64_t seed, int64_t n) {
  RandomStream rng(seed, RandomPurpose::kTest);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = Laplace(rng);
  return values;
}

// A selection the way that compressors do it; its values are those there.
std::vector<uint32_t> Select(Selector& selector, absl::Span<const float> values,
                             double density) {
  const float threshold =
      selector.CandidateThreshold(static_cast<int64_t>(values.size()));
  std::vector<uint32_t> positions;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) >= threshold) {
      positions.push_back(static_cast<uint32_t>(i));
    }
  }
  Candidates selected = Gather(values, positions);
  selector.SelectFrom(values, density, &selected);
  EXPECT_EQ(selected.values, Gather(values, selected.positions).values);
  return selected.positions;
}

TEST(TargetCountTest, RoundsUpButNotForRoundingErrors) {
  EXPECT_EQ(TargetCount(100, 0.07), 7);  // 0.07 * 100 > 7 in double
  EXPECT_EQ(TargetCount(1001, 0.001), 2);
  EXPECT_EQ(TargetCount(1000, 0.001), 1);
  EXPECT_EQ(TargetCount(5, 1e-6), 1);
  EXPECT_EQ(TargetCount(5, 1.0), 5);
  EXPECT_EQ(TargetCount(0, 0.5), 0);
}

TEST(SelectExactTest, AgreesWithSortingOnRandomValues) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    const uint32_t n = 1 + rng.UniformInt(500);
    std::vector<float> values(n);
    // A coarse grid, so that ties and zeros abound; magnitudes over the whole
    // range of floats, denormals included.
    const float scale =
        std::ldexp(1.0f, static_cast<int>(rng.UniformInt(200)) - 148);
    for (float& v : values) {
      v = scale * static_cast<float>(static_cast<int>(rng.UniformInt(21)) - 10);
    }
    const int64_t count = rng.UniformInt(n + 2);
    EXPECT_EQ(SelectExact(values, count).positions,
              SelectBySorting(values, count));
  }
}

TEST(SelectExactTest, KeepsLowestPositionsOnTies) {
  const std::vector<float> values = {1, -2, 2, -2, 2};
  EXPECT_THAT(SelectExact(values, 2).positions, ElementsAre(1, 2));
  EXPECT_THAT(SelectExact(values, 5).positions, ElementsAre(0, 1, 2, 3, 4));
}

TEST(SelectExactTest, NeverSelectsZeros) {
  const std::vector<float> values = {0.0f, -0.0f, 1e-45f, 0.0f};
  EXPECT_THAT(SelectExact(values, 4).positions, ElementsAre(2));
  EXPECT_THAT(SelectExact(std::vector<float>(), 3).positions, IsEmpty());
}

TEST(SelectorTest, SmallTensorsAreSelectedExactlyAndKeepNoThreshold) {
  const auto values = LaplaceVector(1, Selector::kExactBelow - 1);
  Selector selector;
  EXPECT_EQ(Select(selector, values, 0.01), SelectBySorting(values, 11));
  EXPECT_EQ(selector.state(), SelectorState());
}

TEST(SelectorTest, FirstSelectionOfALargeTensorIsExact) {
  for (const double density : {0.0001, 0.001, 0.05, 0.5, 1.0}) {
    SCOPED_TRACE(density);
    const auto values = LaplaceVector(2, 20000);
    Selector selector;
    EXPECT_EQ(Select(selector, values, density),
              SelectBySorting(values, TargetCount(20000, density)));
  }
}

TEST(SelectorTest, AllZeroTensorGivesAnEmptySelection) {
  const std::vector<float> zeros(5000, 0.0f);
  Selector selector;
  EXPECT_THAT(Select(selector, zeros, 0.01), IsEmpty());
  EXPECT_EQ(selector.state().threshold, 0);
  // And a threshold from better days does not trip over it.
  selector.set_state({1.0f});
  EXPECT_THAT(Select(selector, zeros, 0.01), IsEmpty());
}

TEST(SelectorTest, ThresholdAboveEverythingIsReplacedAtOnce) {
  const auto values = LaplaceVector(3, 5000);
  Selector selector;
  selector.set_state({1e9f});
  EXPECT_EQ(Select(selector, values, 0.01), SelectBySorting(values, 50));
  EXPECT_GT(selector.state().threshold, 0.5f);
  EXPECT_LT(selector.state().threshold, 10.0f);
}

TEST(SelectorTest, ThresholdBelowEverythingIsReplacedAtOnce) {
  const auto values = LaplaceVector(4, 5000);
  Selector selector;
  selector.set_state({1e-9f});
  EXPECT_EQ(Select(selector, values, 0.01), SelectBySorting(values, 50));
  EXPECT_GT(selector.state().threshold, 0.5f);
  EXPECT_LT(selector.state().threshold, 10.0f);
}

TEST(SelectorTest, FewNonzerosAreAllSelected) {
  std::vector<float> values(5000, 0.0f);
  values[17] = 1e-40f;  // denormal
  values[4999] = -3;
  Selector selector;
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(Select(selector, values, 0.01), ElementsAre(17, 4999));
  }
}

TEST(SelectorTest, EqualMagnitudesBeyondTheCapGoLowestPositionFirst) {
  std::vector<float> values(5000, -2.0f);
  Selector selector;
  const auto selected = Select(selector, values, 0.01);
  ASSERT_THAT(selected, SizeIs(50));
  EXPECT_EQ(selected.back(), 49u);
  // Error feedback then makes the rest larger than what was sent.
  for (const uint32_t p : selected) values[p] = 0;
  EXPECT_EQ(Select(selector, values, 0.01).front(), 50u);
}

TEST(SelectorTest, TiesAtTheThresholdAreAllSentUpToTheCap) {
  std::vector<float> values(5000, 0.25f);
  for (int i = 0; i < 150; ++i) values[static_cast<size_t>(30 * i)] = 1.0f;
  Selector selector;
  EXPECT_THAT(Select(selector, values, 0.01), SizeIs(150));  // cap is 200
}

TEST(SelectorTest, TiesBeyondTheCapAreLeftOutWhenOthersAreLarger) {
  std::vector<float> values(5000, 0.25f);
  values[7] = values[4000] = 1.0f;
  Selector selector;
  EXPECT_THAT(Select(selector, values, 0.01), ElementsAre(7, 4000));
}

// A long tensor's first threshold comes from a sample; what is selected by it
// is exact all the same, whatever the law and the order of the values.
TEST(SelectorTest, FirstSelectionOfAVeryLargeTensorIsExact) {
  constexpr int64_t kSize = (1 << 20) + 77;
  for (const bool sorted : {false, true}) {
    auto values = LaplaceVector(5, kSize);
    if (sorted) std::sort(values.begin(), values.end());
    for (const double density : {1e-5, 0.001, 0.3}) {
      SCOPED_TRACE(density);
      Selector selector;
      EXPECT_EQ(Select(selector, values, density),
                SelectBySorting(values, TargetCount(kSize, density)));
    }
  }
}

TEST(SelectorTest, AVeryLargeTensorOfFewNonzerosSelectsThem) {
  std::vector<float> values(1 << 20, 0.0f);
  values[3] = 1;
  values[999999] = -1e-30f;
  Selector selector;
  EXPECT_THAT(Select(selector, values, 0.01), ElementsAre(3, 999999));
  EXPECT_THAT(Select(selector, values, 0.01), ElementsAre(3, 999999));
}

TEST(SelectorTest, StateIsTheWholeHistory) {
  Selector original;
  for (uint64_t step = 0; step < 20; ++step) {
    Select(original, LaplaceVector(step, 3000), 0.01);
  }
  Selector restored;
  restored.set_state(original.state());
  for (uint64_t step = 20; step < 40; ++step) {
    const auto values = LaplaceVector(step, 3000);
    ASSERT_EQ(Select(restored, values, 0.01), Select(original, values, 0.01));
  }
}

TEST(SelectorStateTest, TextKeepsEveryBit) {
  for (const SelectorState& state :
       {SelectorState{}, SelectorState{0.1f},
        SelectorState{std::numeric_limits<float>::denorm_min()},
        SelectorState{std::numeric_limits<float>::max()}}) {
    EXPECT_THAT(ParseSelectorState(FormatSelectorState(state)),
                IsOkAndHolds(state));
  }
  EXPECT_EQ(FormatSelectorState({1.0f}), "1065353216");
}

TEST(SelectorStateTest, RefusesWhatNoSelectorHas) {
  for (const char* text :
       {"", "1065353216 3", "x", "-1", "4294967296", "3212836864" /* -1 */,
        "2147483648" /* -0 */, "2139095040" /* infinity */,
        "2143289344" /* NaN */}) {
    EXPECT_THAT(ParseSelectorState(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("no selector's state")))
        << text;
  }
}

// A residual under error feedback with momentum: coordinates of different
// scales, with a mean each, and a learning rate that drops once.
struct Training {
  const char* name;
  double density;
  double scale_spread;
  MomentumForm form;
  double compensation;
};

class SelectorRunTest : public ::testing::TestWithParam<Training> {};

TEST_P(SelectorRunTest, MeanCountIsWithinATenthOfTheTargetUnderErrorFeedback) {
  const Training& run = GetParam();
  constexpr int64_t kSize = 10000;
  constexpr int kSteps = 400;
  constexpr uint64_t kSeed = 7;
  RecordProperty("seed", static_cast<int>(kSeed));
  GradientCompressorOptions options;
  options.form = run.form;
  options.compensation = run.compensation;
  VectorCompressor compressor(kSize, options);
  RandomStream rng(kSeed, RandomPurpose::kTest);
  std::vector<float> scale(kSize), mean(kSize), gradient(kSize);
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = static_cast<float>(std::exp(run.scale_spread * rng.Normal()));
    mean[i] = 0.1f * scale[i] * static_cast<float>(rng.Normal());
  }
  const double target = static_cast<double>(TargetCount(kSize, run.density));
  CompressedTensor sent;
  double total = 0;
  double total_after_drop = 0;
  for (int step = 0; step < kSteps; ++step) {
    const float rate = step < 300 ? 1.0f : 0.3f;
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = rate * (mean[i] + scale[i] * Laplace(rng));
    }
    RV_ASSERT_OK(compressor.Compress(gradient, {run.density, 32}, &sent));
    compressor.Commit();
    const double count = static_cast<double>(sent.count());
    const double spread = 2 * std::sqrt(target);
    ASSERT_GE(count, std::floor(0.8 * target - spread)) << step;
    ASSERT_LE(count, std::max(Selector::kCap * target, target + spread))
        << step;
    total += count;
    if (step >= 300) total_after_drop += count;
  }
  EXPECT_NEAR(total / kSteps / target, 1, 0.1);
  // Of ten entries a step, 100 steps are not enough to tell a drop from chance.
  EXPECT_NEAR(total_after_drop / 100 / target, 1, target < 20 ? 0.3 : 0.1);
}

INSTANTIATE_TEST_SUITE_P(
    All, SelectorRunTest,
    ::testing::Values(
        Training{"Narrow", 0.001, 0.0, MomentumForm::kNesterov, 0},
        Training{"Wide", 0.001, 1.0, MomentumForm::kNesterov, 0},
        Training{"Heavy", 0.01, 2.0, MomentumForm::kNesterov, 0},
        Training{"Dense", 0.05, 1.0, MomentumForm::kPlain, 0},
        Training{"Compensated", 0.01, 1.0, MomentumForm::kPlain, 1},
        Training{"NoMomentum", 0.01, 1.0, MomentumForm::kNone, 0}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(SelectorTest, CountFollowsTheWarmUpLadder) {
  VectorCompressor compressor(20000, {});
  RandomStream rng(11, RandomPurpose::kTest);
  std::vector<float> gradient(20000);
  CompressedTensor sent;
  for (const double density : {0.25, 0.0625, 0.015625, 0.004, 0.001}) {
    double total = 0;
    for (int step = 0; step < 50; ++step) {
      for (float& g : gradient) g = Laplace(rng);
      RV_ASSERT_OK(compressor.Compress(gradient, {density, 32}, &sent));
      compressor.Commit();
      total += static_cast<double>(sent.count());
    }
    EXPECT_NEAR(total / 50 / static_cast<double>(TargetCount(20000, density)),
                1, 0.1)
        << density;
  }
}

}  // namespace
}  // namespace rivulet
