// The lemmas of docs/THEORY.md, as far as a machine can check them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "compression/gradient_compressor.h"
#include "compression/selector.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Decoded;
using ::rivulet::testing::NormalVector;
using ::rivulet::testing::Quantized;
using ::rivulet::testing::VectorCompressor;

double SquaredNorm(absl::Span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return sum;
}

// Laws that are easy, heavy-tailed, or made to be hard: one giant, all equal,
// two scales, a geometric ladder, a lone sign.
std::vector<std::vector<float>> HardVectors(int64_t n) {
  std::vector<std::vector<float>> vectors;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    vectors.push_back(NormalVector(seed, n));
    auto heavy = NormalVector(100 + seed, n);
    for (float& v : heavy) v = v * v * v;
    vectors.push_back(heavy);
  }
  std::vector<float> giant(static_cast<size_t>(n), 1e-3f);
  giant[17] = 1e6f;
  vectors.push_back(giant);
  vectors.emplace_back(static_cast<size_t>(n), -0.5f);
  std::vector<float> scales, ladder;
  for (int64_t i = 0; i < n; ++i) {
    scales.push_back(i % 50 == 0 ? 1.0f : 0.4999f);
    ladder.push_back(std::pow(0.99f, static_cast<float>(i % 2000)) *
                     (i % 2 == 0 ? 1 : -1));
  }
  vectors.push_back(scales);
  vectors.push_back(ladder);
  return vectors;
}

std::vector<TensorPlan> SparsePlans() {
  std::vector<TensorPlan> plans;
  for (const double density : {0.001, 0.01, 0.2}) {
    for (const int bits : {1, 2, 3, 4, 8, 16, 32}) {
      for (const LevelFit fit : {LevelFit::kFitted, LevelFit::kSteps}) {
        TensorPlan plan{density, bits};
        plan.level_fit = fit;
        plans.push_back(plan);
      }
    }
  }
  return plans;
}

// Lemma 2: ‖s - C(s)‖² <= (1 - (1 - theta²) m/n) ‖s‖², m the number sent.
TEST(TheoryTest, ContractionIsWithinItsBound) {
  for (const auto& s : HardVectors(3000)) {
    for (const TensorPlan& plan : SparsePlans()) {
      const CompressedTensor sent = Quantized(s, plan);
      double error_sent = 0;
      double energy_sent = 0;
      double error = SquaredNorm(s);
      for (int64_t i = 0; i < sent.count(); ++i) {
        const double x = s[sent.Position(i)];
        const double e = x - static_cast<double>(sent.Decode(i));
        error_sent += e * e;
        energy_sent += x * x;
        error += e * e - x * x;
      }
      if (sent.count() == 0) continue;
      const double theta2 = error_sent / energy_sent;
      EXPECT_LE(theta2, 1);
      const double share =
          static_cast<double>(sent.count()) / static_cast<double>(s.size());
      // What is sent is among the largest, though not all that was selected.
      EXPECT_LE(error,
                (1 - (1 - theta2) * share) * SquaredNorm(s) * (1 + 1e-9));
    }
  }
}

TEST(TheoryTest, NoElementsErrorGrows) {
  for (const auto& s : HardVectors(3000)) {
    for (const TensorPlan& plan : SparsePlans()) {
      const auto decoded = Decoded(Quantized(s, plan));
      for (size_t i = 0; i < s.size(); ++i) {
        ASSERT_LE(std::fabs(s[i] - decoded[i]), std::fabs(s[i]));
      }
    }
  }
}

// Lemma 1, with two workers, changing densities and widths, silent steps, and a
// lossy downlink, which has no part in it.
TEST(TheoryTest, VirtualIterateFollowsSgd) {
  constexpr int64_t kSize = 2000;
  constexpr int kWorkers = 2;
  constexpr double kRate = 0.05;
  GradientCompressorOptions options;
  options.form = MomentumForm::kNone;
  options.mask = false;
  options.gain = 10;
  std::vector<VectorCompressor> workers;
  for (int k = 0; k < kWorkers; ++k) workers.emplace_back(kSize, options);
  std::vector<double> w(kSize, 0), plain(kSize, 0);
  RandomStream rng(5, RandomPurpose::kTest);
  for (uint64_t step = 0; step < 200; ++step) {
    constexpr double kDensities[] = {0.0, 0.001, 0.01, 0.3};
    constexpr int kBits[] = {1, 2, 4, 8, 32};
    for (int k = 0; k < kWorkers; ++k) {
      const auto g = NormalVector(7 + static_cast<uint64_t>(k), kSize, 1, step);
      CompressedTensor sent;
      RV_ASSERT_OK(workers[static_cast<size_t>(k)].Compress(
          g, {kDensities[rng.UniformInt(4)], kBits[rng.UniformInt(5)]}, &sent));
      workers[static_cast<size_t>(k)].Commit();
      for (size_t i = 0; i < w.size(); ++i) {
        plain[i] -= kRate * 10 * static_cast<double>(g[i]) / kWorkers;
      }
      for (int64_t i = 0; i < sent.count(); ++i) {
        w[sent.Position(i)] -=
            kRate * static_cast<double>(sent.Decode(i)) / kWorkers;
      }
    }
  }
  for (size_t i = 0; i < w.size(); ++i) {
    double virtual_w = w[i];
    for (VectorCompressor& worker : workers) {
      virtual_w -= kRate * static_cast<double>(worker.residual()[i]) / kWorkers;
    }
    // 200 additions of fp32 numbers of up to a few hundred.
    ASSERT_NEAR(virtual_w, plain[i], 2e-3);
  }
}

// Lemma 4: what is not sent is below the threshold that the step went by.
TEST(TheoryTest, UnsentElementsAreBelowTheThreshold) {
  constexpr int64_t kSize = 20000;
  constexpr int64_t kTarget = 200;
  GradientCompressorOptions options;
  options.form = MomentumForm::kNone;
  options.mask = false;
  VectorCompressor compressor(kSize, options);
  int untrimmed = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    const float threshold = compressor.selector_state().threshold;
    CompressedTensor sent;
    RV_ASSERT_OK(compressor.Compress(NormalVector(11, kSize, 1, step),
                                     {0.01, 32}, &sent));
    compressor.Commit();
    // What is trimmed, and what is found anew, has exactly the target's count.
    if (step < 50 || sent.count() == kTarget) continue;
    ++untrimmed;
    for (const float e : compressor.residual()) {
      ASSERT_LT(std::fabs(e), threshold);
    }
  }
  EXPECT_GT(untrimmed, 100);
}

// Lemma 5 for a gradient of norm G that always points the same way, and for
// random ones: ‖e‖² <= 4 (1 - delta) G² / delta².
TEST(TheoryTest, ResidualIsBounded) {
  constexpr int64_t kSize = 500;  // selected exactly
  constexpr double kDensity = 0.05;
  for (const bool same : {false, true}) {
    for (const int bits : {1, 2, 32}) {
      GradientCompressorOptions options;
      options.form = MomentumForm::kNone;
      options.mask = false;
      VectorCompressor compressor(kSize, options);
      double least_delta = 1;
      double largest = 0;
      for (uint64_t step = 0; step < 2000; ++step) {
        auto g = NormalVector(13, kSize, 1, same ? 0 : step);
        const float scale = 1 / static_cast<float>(std::sqrt(SquaredNorm(g)));
        for (float& x : g) x *= scale;
        std::vector<float> s(g.size());
        for (size_t i = 0; i < g.size(); ++i) {
          s[i] = compressor.residual()[i] + g[i];
        }
        CompressedTensor sent;
        RV_ASSERT_OK(compressor.Compress(g, {kDensity, bits}, &sent));
        compressor.Commit();
        const double left = SquaredNorm(compressor.residual());
        largest = std::max(largest, left);
        least_delta = std::min(least_delta, 1 - left / SquaredNorm(s));
      }
      EXPECT_GT(least_delta, 0);
      EXPECT_LE(largest, 4 * (1 - least_delta) / (least_delta * least_delta));
    }
  }
}

}  // namespace
}  // namespace rivulet
