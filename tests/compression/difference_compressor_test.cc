#include "compression/difference_compressor.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "compression/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::IsEmpty;

std::vector<float> Normal(uint64_t seed, size_t n, float scale = 1) {
  RandomStream rng(seed, RandomPurpose::kTest);
  std::vector<float> values(n);
  for (float& v : values) v = scale * static_cast<float>(rng.Normal());
  return values;
}

TEST(DifferenceCompressorTest, ViewAdvancesByWhatIsDecodedAndNothingElse) {
  for (const double density : {0.01, 1.0}) {
    for (const int bits : {8, 16, 32}) {
      const auto w = Normal(1, 3000);
      const auto before = Normal(2, 3000);
      auto view = before;
      DifferenceCompressor compressor;
      CompressedTensor sent;
      RV_ASSERT_OK(compressor.Compress(w, {density, bits}, {},
                                       absl::MakeSpan(view), &sent));
      EXPECT_GT(sent.count(), 0);
      auto expected = before;
      for (int64_t i = 0; i < sent.count(); ++i) {
        expected[sent.Position(i)] += sent.Decode(i);
      }
      EXPECT_EQ(view, expected);
    }
  }
}

// What the server keeps as v̂ is what a worker gets by decoding the frames.
TEST(DifferenceCompressorTest, WorkersViewFollowsTheServersBitForBit) {
  constexpr size_t kSize = 3000;
  auto w = Normal(3, kSize);
  std::vector<float> view = w;
  std::vector<float> workers = w;
  DifferenceCompressor compressor;
  const SegmentTable table = {static_cast<int64_t>(kSize)};
  for (uint64_t step = 0; step < 40; ++step) {
    const auto update = Normal(100 + step, kSize, 0.01f);
    for (size_t i = 0; i < kSize; ++i) w[i] += update[i];
    CompressedTensor sent;
    RV_ASSERT_OK(
        compressor.Compress(w, {0.02, 8}, {}, absl::MakeSpan(view), &sent));
    FrameEncoder encoder;
    encoder.Add(0, sent, 0, static_cast<int64_t>(kSize));
    RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                            DecodeFrames(encoder.Finish(), table));
    for (const SegmentUpdate& u : updates) u.ApplyTo(absl::MakeSpan(workers));
    ASSERT_EQ(workers, view);
  }
}

TEST(DifferenceCompressorTest, ViewConvergesToWeightsThatRest) {
  const auto w = Normal(4, 2000);
  std::vector<float> view(2000, 0.0f);
  DifferenceCompressor compressor;
  CompressedTensor sent;
  for (int step = 0; step < 200; ++step) {
    RV_ASSERT_OK(
        compressor.Compress(w, {0.05, 8}, {}, absl::MakeSpan(view), &sent));
  }
  for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(view[i], w[i], 1e-4);
}

// The bound of README.md, "How large the error is", for exact selections: an
// exact top-m keeps at least m / n of the energy, and each sent value errs by
// half a step at most.
TEST(DifferenceCompressorTest, ErrorIsWithinTheStatedBound) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const double density : {0.001, 0.01, 0.3}) {
      for (const int bits : {8, 16, 32}) {
        SCOPED_TRACE(seed);
        auto w = Normal(seed, 4000);
        for (float& x : w) x = x * x * x;  // heavy tails
        std::vector<float> view(w.size(), 0.0f);
        DifferenceCompressor compressor;
        CompressedTensor sent;
        RV_ASSERT_OK(compressor.Compress(w, {density, bits}, {},
                                         absl::MakeSpan(view), &sent));
        double energy = 0;
        double error = 0;
        for (size_t i = 0; i < w.size(); ++i) {
          energy += static_cast<double>(w[i]) * w[i];
          const double e = static_cast<double>(w[i]) - view[i];
          error += e * e;
        }
        const double n = static_cast<double>(w.size());
        const double m = static_cast<double>(TargetCount(sent.size, density));
        const double step = bits == 32 ? 0 : sent.steps[0];
        EXPECT_LE(error, (1 - m / n) * energy + m * step * step / 4);
      }
    }
  }
}

TEST(DifferenceCompressorTest, EqualWeightsSendNothing) {
  const auto w = Normal(5, 2000);
  auto view = w;
  DifferenceCompressor compressor;
  CompressedTensor sent;
  RV_ASSERT_OK(
      compressor.Compress(w, {0.01, 8}, {}, absl::MakeSpan(view), &sent));
  EXPECT_THAT(sent.positions, IsEmpty());
  EXPECT_EQ(view, w);
}

TEST(DifferenceCompressorTest, WeightsThatAreNotFiniteChangeNothing) {
  const auto view_before = Normal(6, 2000);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    DifferenceCompressor compressor;
    auto view = view_before;
    auto w = Normal(7, 2000);
    CompressedTensor sent;
    RV_ASSERT_OK(
        compressor.Compress(w, {0.01, 8}, {}, absl::MakeSpan(view), &sent));
    const auto state = compressor.selector_state();
    const auto view_then = view;
    w[1999] = bad;
    EXPECT_THAT(
        compressor.Compress(w, {0.01, 8}, {}, absl::MakeSpan(view), &sent),
        StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(view, view_then);
    EXPECT_EQ(compressor.selector_state(), state);
  }
}

}  // namespace
}  // namespace rivulet
