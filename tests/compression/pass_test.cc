#include "compression/pass.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr PassOp kAllOps[] = {PassOp::kScan, PassOp::kDifference,
                              PassOp::kFeedback, PassOp::kPlain,
                              PassOp::kNesterov};

struct Buffers {
  std::vector<float> g, w, u, v, u_out;
  AlignedBuffer<float> v_out;
};

Buffers RandomBuffers(uint64_t seed, size_t n) {
  RandomStream rng(seed, RandomPurpose::kTest);
  Buffers b;
  for (auto* in : {&b.g, &b.w, &b.u, &b.v}) {
    in->resize(n);
    for (float& x : *in) {
      // A few denormals and huge values among ordinary ones.
      const uint32_t kind = rng.UniformInt(20);
      const float scale = kind == 0 ? 1e-41f : (kind == 1 ? 1e30f : 1.0f);
      x = scale * static_cast<float>(rng.Normal());
    }
  }
  b.u_out.assign(n, -77.0f);
  b.v_out = AlignedBuffer<float>(static_cast<int64_t>(n));
  return b;
}

enum Variant { kBare, kDecayed, kInPlaceOfTheGradient, kStreamed };

PassArgs ArgsOf(Buffers& b, PassOp op, Variant variant = kBare) {
  PassArgs args;
  args.op = op;
  args.size = static_cast<int64_t>(b.g.size());
  args.g = b.g.data();
  args.u = b.u.data();
  args.v = b.v.data();
  args.u_out = b.u_out.data();
  args.v_out = b.v_out.data();
  args.momentum = 0.9f;
  args.scale = 0.7f;
  if (variant == kDecayed) {
    args.w = b.w.data();
    args.decay = 0.01f;
    args.compensation = 4.5f;
  }
  if (variant == kInPlaceOfTheGradient) {
    (op == PassOp::kFeedback ? args.v_out : args.u_out) = b.g.data();
  }
  args.stream_v = variant == kStreamed;
  return args;
}

// The equations of pass.h, each operation rounded by itself.
float NaiveStep(const PassArgs& a, size_t i) {
  if (a.op == PassOp::kScan) return a.g[i];
  if (a.op == PassOp::kDifference) return a.g[i] - a.v[i];
  volatile float product, x, u, added, v;  // no contraction, whatever the flags
  x = a.scale * a.g[i];
  if (a.w != nullptr) {
    product = a.decay * a.w[i];
    x = x + product;
  }
  if (a.op == PassOp::kFeedback) return a.v_out[i] = a.v[i] + x;
  if (a.op == PassOp::kPlain) {
    product = a.momentum * a.u[i];
    u = product + x;
    added = u;
  } else {
    added = a.u[i] + x;
    u = a.momentum * added;
    added = u + x;
  }
  v = a.v[i] + added;
  a.u_out[i] = u;
  a.v_out[i] = v;
  product = a.compensation * u;
  return v + product;
}

std::vector<uint32_t> Bits(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

class PassTest : public ::testing::Test {
 protected:
  ~PassTest() override { UsePassTargetForTest(""); }
};

TEST_F(PassTest, EveryTargetGivesTheBitsOfTheNaiveLoop) {
  const auto targets = PassTargets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& target : targets) {
    ASSERT_TRUE(UsePassTargetForTest(target));
    for (const PassOp op : kAllOps) {
      for (const Variant variant :
           {kBare, kDecayed, kInPlaceOfTheGradient, kStreamed}) {
        for (const size_t n :
             {0, 1, 2, 3, 5, 15, 16, 17, 33, 4095, 4096, 4097, 10000}) {
          SCOPED_TRACE(target + " op " + std::to_string(static_cast<int>(op)) +
                       " variant " + std::to_string(variant) + " n " +
                       std::to_string(n));
          Buffers expected = RandomBuffers(n, n);
          Buffers actual = RandomBuffers(n, n);
          const PassArgs naive = ArgsOf(expected, op, variant);
          const PassArgs args = ArgsOf(actual, op, variant);
          Candidates wanted;
          for (size_t i = 0; i < n; ++i) {
            const float s = NaiveStep(naive, i);
            if (std::fabs(s) < 1.5f) continue;
            wanted.positions.push_back(static_cast<uint32_t>(i));
            wanted.values.push_back(s);
          }
          Candidates found;
          ASSERT_TRUE(RunPass(args, 1.5f, &found));
          EXPECT_EQ(found.positions, wanted.positions);
          EXPECT_EQ(Bits(found.values), Bits(wanted.values));
          EXPECT_EQ(Bits(actual.g), Bits(expected.g));
          EXPECT_EQ(Bits(actual.u_out), Bits(expected.u_out));
          EXPECT_EQ(Bits(actual.v_out.span()), Bits(expected.v_out.span()));
        }
      }
    }
  }
}

TEST_F(PassTest, EveryTargetFindsANumberThatIsNotFiniteAtEachPosition) {
  for (const std::string& target : PassTargets()) {
    ASSERT_TRUE(UsePassTargetForTest(target));
    for (const PassOp op : kAllOps) {
      for (const float bad :
           {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (size_t at = 0; at < 37; ++at) {
          SCOPED_TRACE(target + " at " + std::to_string(at));
          Buffers b = RandomBuffers(1, 37);
          b.g[at] = bad;
          Candidates found;
          EXPECT_FALSE(RunPass(ArgsOf(b, op), kInfinity, &found));
        }
      }
    }
  }
}

TEST_F(PassTest, OverflowOfAFiniteGradientIsNotFinite) {
  Buffers b = RandomBuffers(1, 40);
  b.g[39] = b.v[39] = std::numeric_limits<float>::max();
  Candidates found;
  EXPECT_FALSE(RunPass(ArgsOf(b, PassOp::kFeedback), kInfinity, &found));
}

TEST_F(PassTest, InfiniteThresholdFindsNothing) {
  Buffers b = RandomBuffers(1, 5000);
  Candidates found;
  EXPECT_TRUE(RunPass(ArgsOf(b, PassOp::kScan), kInfinity, &found));
  EXPECT_THAT(found.positions, IsEmpty());
}

TEST_F(PassTest, EveryElementMayBeFound) {
  Buffers b = RandomBuffers(1, 9000);
  Candidates found;
  EXPECT_TRUE(RunPass(ArgsOf(b, PassOp::kScan), 0.0f, &found));
  EXPECT_EQ(Bits(found.values), Bits(b.g));
}

TEST_F(PassTest, RefusesTargetsItHasNot) {
  EXPECT_FALSE(UsePassTargetForTest("Z80"));
}

}  // namespace
}  // namespace rivulet
