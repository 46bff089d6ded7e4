#include "compression/gradient_compressor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Decoded;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::VectorCompressor;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomGradient(uint64_t seed, uint64_t step, int64_t n,
                                  float scale = 1) {
  return ::rivulet::testing::NormalVector(seed, n, scale, step);
}

std::vector<uint32_t> Bits(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

std::vector<float> Copy(absl::Span<const float> values) {
  return {values.begin(), values.end()};
}

GradientCompressorOptions Options(MomentumForm form, double compensation = 0) {
  GradientCompressorOptions options;
  options.form = form;
  options.compensation = compensation;
  return options;
}

std::unique_ptr<VectorCompressor> Make(
    int64_t n, const GradientCompressorOptions& options) {
  return std::make_unique<VectorCompressor>(n, options);
}

struct Case {
  MomentumForm form;
  double compensation;
  double density;
  int value_bits;
  int64_t size;
};

// Steps, each against the header's equations written out.
void CheckStepsAgainstTheEquations(const Case& c) {
  const float m = 0.9f;
  const float cm = static_cast<float>(c.compensation * 0.9 / (1.0 - 0.9));
  const bool masked = c.form != MomentumForm::kNone && c.density <= 0.02;
  auto compressor = Make(c.size, Options(c.form, c.compensation));
  CompressedTensor sent;
  for (uint64_t step = 0; step < 25; ++step) {
    SCOPED_TRACE(step);
    const auto g = RandomGradient(21, step, c.size);
    const auto u_before = Copy(compressor->momentum());
    const auto v_before = Copy(compressor->residual());
    RV_ASSERT_OK(compressor->Compress(g, {c.density, c.value_bits}, &sent));
    compressor->Commit();
    const auto u_after = compressor->momentum();
    const auto v_after = compressor->residual();

    std::vector<bool> is_sent(g.size(), sent.dense);
    for (const uint32_t p : sent.positions) is_sent[p] = true;
    const auto decoded = Decoded(sent);
    for (size_t i = 0; i < g.size(); ++i) {
      volatile float u = 0, added = g[i], v, s;
      if (c.form == MomentumForm::kPlain) {
        u = m * u_before[i];
        u = u + g[i];
        added = u;
      } else if (c.form == MomentumForm::kNesterov) {
        u = u_before[i] + g[i];
        u = m * u;
        added = u + g[i];
      }
      v = v_before[i] + added;
      s = v;
      if (masked && c.compensation > 0) {
        volatile float extra = cm * u;
        s = v + extra;
      }
      if (is_sent[i]) {
        volatile float kept = s - decoded[i];
        ASSERT_EQ(std::bit_cast<uint32_t>(v_after[i]),
                  std::bit_cast<uint32_t>(static_cast<float>(kept)));
        if (!u_after.empty()) {
          ASSERT_EQ(u_after[i], masked ? 0.0f : static_cast<float>(u));
        }
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(v_after[i]),
                  std::bit_cast<uint32_t>(static_cast<float>(v)));
        if (!u_after.empty()) {
          ASSERT_EQ(u_after[i], u);
        }
      }
    }
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const MomentumForm form :
       {MomentumForm::kNone, MomentumForm::kPlain, MomentumForm::kNesterov}) {
    for (const double compensation : {0.0, 0.5, 1.0}) {
      for (const double density : {0.0, 0.005, 0.1, 1.0}) {
        for (const int bits : {2, 8, 32}) {
          if (density == 1 && bits == 2) continue;
          for (const int64_t size : {1, 500, 3000}) {
            cases.push_back({form, compensation, density, bits, size});
          }
        }
      }
    }
  }
  return cases;
}

TEST(GradientCompressorTest, StepDoesExactlyWhatTheEquationsSay) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(absl::StrFormat("form %d, c %g, density %g, %d bits, size %d",
                                 static_cast<int>(c.form), c.compensation,
                                 c.density, c.value_bits, c.size));
    CheckStepsAgainstTheEquations(c);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Without momentum all that went in was sent or is left.
TEST(GradientCompressorTest, SentPlusResidualIsTheSumOfTheGradients) {
  constexpr int64_t kSize = 2000;
  constexpr int kSteps = 200;
  for (const int bits : {8, 16, 32}) {
    SCOPED_TRACE(bits);
    auto compressor = Make(kSize, Options(MomentumForm::kNone));
    std::vector<double> given(kSize, 0), sent_sum(kSize, 0);
    CompressedTensor sent;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const auto g = RandomGradient(31, step, kSize);
      RV_ASSERT_OK(compressor->Compress(g, {0.01, bits}, &sent));
      compressor->Commit();
      const auto decoded = Decoded(sent);
      for (size_t i = 0; i < g.size(); ++i) {
        given[i] += g[i];
        sent_sum[i] += decoded[i];
      }
    }
    // Each step rounds v once or twice; |v| stays below 64.
    const double tolerance = 2 * kSteps * 64 * std::ldexp(1.0, -24);
    for (size_t i = 0; i < given.size(); ++i) {
      ASSERT_NEAR(sent_sum[i] + compressor->residual()[i], given[i], tolerance);
    }
  }
}

// With all sent, it is plain momentum SGD.
TEST(GradientCompressorTest, DenseLosslessPathEqualsMomentumSgd) {
  constexpr int64_t kSize = 1500;
  for (const MomentumForm form :
       {MomentumForm::kPlain, MomentumForm::kNesterov}) {
    auto compressor = Make(kSize, Options(form));
    const float lr = 0.1f;
    std::vector<float> w(kSize, 1.0f), reference(kSize, 1.0f), buffer(kSize, 0);
    CompressedTensor sent;
    for (uint64_t step = 0; step < 60; ++step) {
      const auto noise = RandomGradient(41, step, kSize, 0.1f);
      std::vector<float> g(kSize);
      for (size_t i = 0; i < g.size(); ++i) g[i] = 0.3f * w[i] + noise[i];
      RV_ASSERT_OK(compressor->Compress(g, {1.0, 32}, &sent));
      compressor->Commit();
      ASSERT_THAT(compressor->residual(), Each(0.0f));
      const auto update = Decoded(sent);
      for (size_t i = 0; i < g.size(); ++i) {
        w[i] -= lr * update[i];
        // torch.optim.SGD: buf = m buf + g; step along g + m buf or buf.
        const float r = 0.3f * reference[i] + noise[i];
        buffer[i] = 0.9f * buffer[i] + r;
        reference[i] -=
            lr *
            (form == MomentumForm::kPlain ? buffer[i] : r + 0.9f * buffer[i]);
      }
    }
    for (size_t i = 0; i < w.size(); ++i) {
      if (form == MomentumForm::kPlain) {
        ASSERT_EQ(w[i], reference[i]);
      } else {
        // m (u + g) and m (m buf + g) round alike; only the sum of the step
        // may differ in its last bit.
        ASSERT_NEAR(w[i], reference[i], 1e-5);
      }
    }
  }
}

// The switch from sparse to dense and back loses nothing of the momentum.
TEST(GradientCompressorTest, UnmaskedWarmUpSwitchKeepsTheMomentumTrajectory) {
  auto options = Options(MomentumForm::kPlain);
  options.mask = false;
  auto compressor = Make(1200, options);
  std::vector<double> u(1200, 0), total(1200, 0), sent_sum(1200, 0);
  CompressedTensor sent;
  for (uint64_t step = 0; step < 60; ++step) {
    const double density = step < 20 ? 1.0 : (step < 40 ? 0.05 : 1.0);
    const auto g = RandomGradient(43, step, 1200);
    RV_ASSERT_OK(compressor->Compress(g, {density, 32}, &sent));
    compressor->Commit();
    const auto decoded = Decoded(sent);
    for (size_t i = 0; i < u.size(); ++i) {
      u[i] = 0.9 * u[i] + g[i];
      total[i] += u[i];
      sent_sum[i] += decoded[i];
    }
  }
  for (size_t i = 0; i < u.size(); ++i) {
    ASSERT_NEAR(sent_sum[i], total[i], 1e-3);
    ASSERT_EQ(compressor->residual()[i], 0.0f);
  }
}

// With c = 1 and plain momentum s = v + m/(1-m) u obeys
// s <- s + g/(1-m), less what is sent.
TEST(GradientCompressorTest, FullCompensationIsErrorFeedbackWithoutMomentum) {
  constexpr int64_t kSize = 1500;
  auto compressor = Make(kSize, Options(MomentumForm::kPlain, 1.0));
  std::vector<double> s(kSize, 0);
  CompressedTensor sent;
  for (uint64_t step = 0; step < 100; ++step) {
    const auto g = RandomGradient(51, step, kSize);
    RV_ASSERT_OK(compressor->Compress(g, {0.01, 8}, &sent));
    compressor->Commit();
    const auto decoded = Decoded(sent);
    for (size_t i = 0; i < s.size(); ++i) {
      s[i] += static_cast<double>(g[i]) / (1 - 0.9) - decoded[i];
      const double ours =
          compressor->residual()[i] + 9.0 * compressor->momentum()[i];
      ASSERT_NEAR(ours, s[i], 2e-3) << step;
    }
  }
}

// ... and the form without u is that, bit for bit s itself.
TEST(GradientCompressorTest, GainTakesThePlaceOfMomentum) {
  constexpr int64_t kSize = 1500;
  GradientCompressorOptions folded = Options(MomentumForm::kNone);
  folded.gain = 1 / (1 - 0.9);
  auto compressor = Make(kSize, folded);
  std::vector<float> s(kSize, 0);
  const auto gain = static_cast<float>(folded.gain);
  CompressedTensor sent;
  for (uint64_t step = 0; step < 100; ++step) {
    const auto g = RandomGradient(53, step, kSize);
    RV_ASSERT_OK(compressor->Compress(g, {0.01, 8}, &sent));
    compressor->Commit();
    for (size_t i = 0; i < s.size(); ++i) {
      const volatile float x = gain * g[i];
      s[i] = s[i] + x;
    }
    for (int64_t i = 0; i < sent.count(); ++i) {
      s[sent.Position(i)] -= sent.Decode(i);
    }
    ASSERT_EQ(Bits(compressor->residual()), Bits(s)) << step;
  }
  EXPECT_THAT(compressor->momentum(), IsEmpty());
}

// The gradient that counts is scale * gradient + decay * parameter.
TEST(GradientCompressorTest, ScaleAndDecayJoinTheGradient) {
  constexpr int64_t kSize = 3000;
  const auto weights = RandomGradient(57, 1, kSize);
  for (const MomentumForm form :
       {MomentumForm::kNone, MomentumForm::kPlain, MomentumForm::kNesterov}) {
    auto with = Make(kSize, Options(form));
    auto without = Make(kSize, Options(form));
    CompressedTensor a, b;
    for (uint64_t step = 0; step < 10; ++step) {
      const auto g = RandomGradient(57, 10 + step, kSize);
      std::vector<float> joined(g.size());
      for (size_t i = 0; i < g.size(); ++i) {
        const volatile float scaled = 0.3f * g[i];
        const volatile float decayed = 0.01f * weights[i];
        joined[i] = scaled + decayed;
      }
      GradientInput input;
      input.parameter = weights;
      input.scale = 0.3f;
      input.decay = 0.01f;
      RV_ASSERT_OK(with->Compress(g, input, {0.01, 8}, &a));
      RV_ASSERT_OK(without->Compress(joined, {0.01, 8}, &b));
      with->Commit();
      without->Commit();
      ASSERT_EQ(a.positions, b.positions);
      ASSERT_EQ(a.levels, b.levels);
      ASSERT_EQ(Bits(with->residual()), Bits(without->residual()));
    }
  }
}

// Large enough to be divided, and to be written past the caches.
TEST(GradientCompressorTest, ThreadsChangeNoBit) {
  constexpr int64_t kSize = (1 << 20) + 4099;
  for (const MomentumForm form :
       {MomentumForm::kNone, MomentumForm::kNesterov}) {
    GradientCompressorOptions options = Options(form);
    auto one = Make(kSize, options);
    options.threads = 3;
    auto three = Make(kSize, options);
    CompressedTensor a, b;
    for (uint64_t step = 0; step < 4; ++step) {
      const auto g = RandomGradient(59, step, kSize);
      RV_ASSERT_OK(one->Compress(g, {0.001, 2}, &a));
      RV_ASSERT_OK(three->Compress(g, {0.001, 2}, &b));
      one->Commit();
      three->Commit();
      ASSERT_EQ(a.positions, b.positions);
      ASSERT_EQ(a.levels, b.levels);
      ASSERT_EQ(Bits(one->residual()), Bits(three->residual()));
      ASSERT_EQ(Bits(one->momentum()), Bits(three->momentum()));
    }
  }
}

TEST(GradientCompressorTest, MomentumIsMaskedBelowTheLimitOnly) {
  for (const double density : {0.02, 0.021}) {
    auto compressor = Make(1000, Options(MomentumForm::kNesterov));
    CompressedTensor sent;
    RV_ASSERT_OK(
        compressor->Compress(RandomGradient(1, 0, 1000), {density, 32}, &sent));
    compressor->Commit();
    ASSERT_GT(sent.count(), 0);
    for (const uint32_t p : sent.positions) {
      EXPECT_EQ(compressor->momentum()[p] == 0, density == 0.02);
    }
  }
}

// Clearing momentum in a tensor that is sent whole would leave none at all.
TEST(GradientCompressorTest, MomentumIsNeverMaskedInADenseTensor) {
  GradientCompressorOptions options = Options(MomentumForm::kPlain);
  options.mask_max_density = 1;
  for (const int bits : {8, 32}) {
    auto compressor = Make(1000, options);
    CompressedTensor sent;
    const auto g = RandomGradient(1, 0, 1000);
    RV_ASSERT_OK(compressor->Compress(g, {1.0, bits}, &sent));
    compressor->Commit();
    ASSERT_TRUE(sent.dense);
    EXPECT_EQ(Copy(compressor->momentum()), g);
  }
}

TEST(GradientCompressorTest, RollbackRestoresEveryBit) {
  for (const double compensation : {0.0, 1.0}) {
    auto compressor =
        Make(3000, Options(MomentumForm::kNesterov, compensation));
    CompressedTensor sent;
    for (uint64_t step = 0; step < 5; ++step) {
      RV_ASSERT_OK(compressor->Compress(RandomGradient(61, step, 3000),
                                        {0.01, 8}, &sent));
      compressor->Commit();
    }
    const auto u = Bits(compressor->momentum());
    const auto v = Bits(compressor->residual());
    const SelectorState selector = compressor->selector_state();
    CompressedTensor first;
    RV_ASSERT_OK(
        compressor->Compress(RandomGradient(61, 5, 3000), {0.01, 8}, &first));
    compressor->Rollback();
    EXPECT_EQ(Bits(compressor->momentum()), u);
    EXPECT_EQ(Bits(compressor->residual()), v);
    EXPECT_EQ(compressor->selector_state(), selector);
    // And the step that is done again is the same step.
    RV_ASSERT_OK(
        compressor->Compress(RandomGradient(61, 5, 3000), {0.01, 8}, &sent));
    EXPECT_EQ(sent.positions, first.positions);
    EXPECT_EQ(sent.levels, first.levels);
    EXPECT_EQ(sent.steps, first.steps);
  }
}

TEST(GradientCompressorTest, GradientThatIsNotFiniteChangesNothing) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const size_t at : {0, 1499, 2999}) {
      auto compressor = Make(3000, Options(MomentumForm::kNesterov));
      CompressedTensor sent;
      for (uint64_t step = 0; step < 5; ++step) {
        RV_ASSERT_OK(compressor->Compress(RandomGradient(71, step, 3000),
                                          {0.01, 8}, &sent));
        compressor->Commit();
      }
      const auto u = Bits(compressor->momentum());
      const auto v = Bits(compressor->residual());
      const SelectorState selector = compressor->selector_state();
      auto poisoned = RandomGradient(71, 5, 3000);
      poisoned[at] = bad;
      EXPECT_THAT(compressor->Compress(poisoned, {0.01, 8}, &sent),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("element " + std::to_string(at))));
      // Nothing is pending: the state can be read, and the next step works.
      EXPECT_EQ(Bits(compressor->momentum()), u);
      EXPECT_EQ(Bits(compressor->residual()), v);
      EXPECT_EQ(compressor->selector_state(), selector);
      RV_ASSERT_OK(
          compressor->Compress(RandomGradient(71, 6, 3000), {0.01, 8}, &sent));
      compressor->Commit();
      for (const float r : compressor->residual())
        ASSERT_TRUE(std::isfinite(r));
    }
  }
}

TEST(GradientCompressorTest, FiniteGradientThatOverflowsIsRefusedToo) {
  auto compressor = Make(10, Options(MomentumForm::kNone));
  const std::vector<float> huge(10, 3e38f);
  CompressedTensor sent;
  RV_ASSERT_OK(compressor->Compress(huge, {0.1, 32}, &sent));
  compressor->Commit();
  EXPECT_THAT(
      compressor->Compress(huge, {0.1, 32}, &sent),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("so large")));
}

TEST(GradientCompressorTest, AllZeroGradientSendsNothing) {
  for (const int64_t size : {10, 3000}) {
    auto compressor = Make(size, Options(MomentumForm::kNesterov));
    const std::vector<float> zeros(static_cast<size_t>(size), 0.0f);
    CompressedTensor sent;
    RV_ASSERT_OK(compressor->Compress(zeros, {0.01, 8}, &sent));
    compressor->Commit();
    EXPECT_THAT(sent.positions, IsEmpty());
    EXPECT_EQ(sent.count(), 0);
  }
}

TEST(GradientCompressorTest, TensorsAroundSixteenBitLengthsWork) {
  for (const int64_t size : {65535, 65536, 65537}) {
    auto compressor = Make(size, Options(MomentumForm::kNesterov));
    std::vector<float> g(static_cast<size_t>(size), 0.0f);
    g.front() = 2;
    g.back() = -1;
    CompressedTensor sent;
    RV_ASSERT_OK(compressor->Compress(g, {0.001, 32}, &sent));
    compressor->Commit();
    EXPECT_THAT(sent.positions,
                ::testing::ElementsAre(0, static_cast<uint32_t>(size - 1)));
  }
}

// Sums stay in fp32, small or large.
TEST(GradientCompressorTest, ExtremeScalesSurviveAccumulation) {
  for (const float scale : {1e-7f, 2e3f, 1e30f}) {
    auto compressor = Make(100, Options(MomentumForm::kNone));
    const std::vector<float> g(100, scale);
    CompressedTensor sent;
    double total = 0;
    for (int step = 0; step < 64; ++step) {
      RV_ASSERT_OK(compressor->Compress(g, {1.0, 8}, &sent));
      compressor->Commit();
      total += sent.Decode(50);
    }
    EXPECT_NEAR((total + compressor->residual()[50]) / (64.0 * scale), 1, 1e-5);
  }
}

// Each layer has its own threshold.
TEST(GradientCompressorTest, LayersOfDifferentScalesSendTheSameShare) {
  for (const float scale : {1.0f, 1e-4f, 1e4f}) {
    auto compressor = Make(5000, Options(MomentumForm::kNesterov));
    CompressedTensor sent;
    int64_t total = 0;
    for (uint64_t step = 0; step < 20; ++step) {
      RV_ASSERT_OK(compressor->Compress(RandomGradient(91, step, 5000, scale),
                                        {0.01, 8}, &sent));
      compressor->Commit();
      total += sent.count();
    }
    EXPECT_NEAR(static_cast<double>(total) / (20 * 50), 1, 0.1) << scale;
  }
}

TEST(GradientCompressorTest, DegenerateTensorsStayFinite) {
  for (const int64_t size : {1, 2000}) {
    for (const float value : {1e-41f, -3.0f}) {
      for (const int bits : {8, 16, 32}) {
        auto compressor = Make(size, Options(MomentumForm::kNesterov, 1.0));
        const std::vector<float> g(static_cast<size_t>(size), value);
        CompressedTensor sent;
        for (int step = 0; step < 20; ++step) {
          RV_ASSERT_OK(compressor->Compress(g, {0.01, bits}, &sent));
          compressor->Commit();
          for (const float v : compressor->residual()) {
            ASSERT_TRUE(std::isfinite(v));
          }
        }
      }
    }
  }
}

// Refused before anything is allocated.
TEST(GradientCompressorTest, SizesBeyondThirtyTwoBitsAreRefused) {
  for (const int64_t size :
       {int64_t{0}, int64_t{-1}, int64_t{4294967296}, int64_t{4294967297},
        std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(GradientCompressor::Create(size, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("1 to 4294967295")));
  }
}

TEST(GradientCompressorTest, OptionsAndPlansOutOfRangeAreRefusedByName) {
  const auto refused = [](const char* name, auto change) {
    GradientCompressorOptions options;
    change(options);
    EXPECT_THAT(GradientCompressor::Create(10, options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  using O = GradientCompressorOptions;
  refused("momentum", [](O& o) { o.momentum = 1; });
  refused("momentum", [](O& o) { o.momentum = kNan; });
  refused("compensation", [](O& o) { o.compensation = 1.5; });
  refused("compensation", [](O& o) {
    o.mask = false;
    o.compensation = 1;
  });
  refused("mask_max_density", [](O& o) { o.mask_max_density = -0.1; });
  refused("gain", [](O& o) {
    o.form = MomentumForm::kNone;
    o.gain = 0;
  });
  refused("gain", [](O& o) { o.gain = 2; });  // with momentum
  refused("threads", [](O& o) { o.threads = 0; });

  auto compressor = Make(10, {});
  CompressedTensor sent;
  const std::vector<float> g(10, 1.0f);
  for (const double density : {1.5, -1.0, static_cast<double>(kNan)}) {
    EXPECT_THAT(
        compressor->Compress(g, {density, 8}, &sent),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("density")));
  }
  for (const TensorPlan& plan : {TensorPlan{0.5, 7}, TensorPlan{1.0, 2}}) {
    EXPECT_THAT(
        compressor->Compress(g, plan, &sent),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("value_bits")));
  }
}

TEST(GradientCompressorTest, CheckpointedStateContinuesInTheSameBits) {
  auto original = Make(3000, Options(MomentumForm::kNesterov));
  CompressedTensor sent;
  for (uint64_t step = 0; step < 10; ++step) {
    RV_ASSERT_OK(
        original->Compress(RandomGradient(95, step, 3000), {0.01, 8}, &sent));
    original->Commit();
  }
  auto restored = Make(3000, Options(MomentumForm::kNesterov));
  std::copy(original->momentum().begin(), original->momentum().end(),
            restored->momentum().begin());
  std::copy(original->residual().begin(), original->residual().end(),
            restored->residual().begin());
  restored->set_selector_state(original->selector_state());
  for (uint64_t step = 10; step < 30; ++step) {
    const auto g = RandomGradient(95, step, 3000);
    CompressedTensor again;
    RV_ASSERT_OK(original->Compress(g, {0.01, 8}, &sent));
    RV_ASSERT_OK(restored->Compress(g, {0.01, 8}, &again));
    original->Commit();
    restored->Commit();
    ASSERT_EQ(sent.positions, again.positions);
    ASSERT_EQ(sent.levels, again.levels);
  }
  EXPECT_EQ(Bits(original->residual()), Bits(restored->residual()));
}

TEST(GradientCompressorDeathTest, DiesIfStepsAreNotCommittedOrRolledBack) {
  auto compressor = Make(10, {});
  const std::vector<float> g(10, 1.0f);
  CompressedTensor sent;
  RV_ASSERT_OK(compressor->Compress(g, {1.0, 32}, &sent));
  EXPECT_DEATH((void)compressor->Compress(g, {1.0, 32}, &sent),
               "before Commit");
  EXPECT_DEATH(compressor->residual(), "pending");
  compressor->Rollback();
  EXPECT_DEATH(compressor->Commit(), "Commit without Compress");
}

}  // namespace
}  // namespace rivulet
