#include "compression/pass.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr PassOp kAllOps[] = {PassOp::kScan, PassOp::kDifference, PassOp::kNone,
                              PassOp::kPlain, PassOp::kNesterov};

struct Buffers {
  std::vector<float> g, u, v, u_out, v_out, s_out;
};

Buffers RandomBuffers(uint64_t seed, size_t n) {
  RandomStream rng(seed, RandomPurpose::kTest);
  Buffers b;
  for (auto* in : {&b.g, &b.u, &b.v}) {
    in->resize(n);
    for (float& x : *in) {
      // A few denormals and huge values among ordinary ones.
      const uint32_t kind = rng.UniformInt(20);
      const float scale = kind == 0 ? 1e-41f : (kind == 1 ? 1e30f : 1.0f);
      x = scale * static_cast<float>(rng.Normal());
    }
  }
  for (auto* out : {&b.u_out, &b.v_out, &b.s_out}) out->assign(n, -77.0f);
  return b;
}

PassArgs ArgsOf(Buffers& b, PassOp op, bool store_s) {
  PassArgs args;
  args.op = op;
  args.size = static_cast<int64_t>(b.g.size());
  args.g = b.g.data();
  args.u = b.u.data();
  args.v = b.v.data();
  args.u_out = b.u_out.data();
  args.v_out = b.v_out.data();
  args.s_out = store_s || op == PassOp::kDifference ? b.s_out.data() : nullptr;
  args.momentum = 0.9f;
  args.compensation = 4.5f;
  return args;
}

// The equations of pass.h, each operation rounded by itself.
float NaiveStep(const PassArgs& a, size_t i) {
  if (a.op == PassOp::kScan) return a.g[i];
  if (a.op == PassOp::kDifference) return a.s_out[i] = a.g[i] - a.v[i];
  if (a.op == PassOp::kNone) return a.v_out[i] = a.v[i] + a.g[i];
  volatile float product, u, added, v;  // no contraction, whatever the flags
  if (a.op == PassOp::kPlain) {
    product = a.momentum * a.u[i];
    u = product + a.g[i];
    added = u;
  } else {
    added = a.u[i] + a.g[i];
    u = a.momentum * added;
    added = u + a.g[i];
  }
  v = a.v[i] + added;
  a.u_out[i] = u;
  a.v_out[i] = v;
  if (a.s_out == nullptr) return v;
  product = a.compensation * u;
  return a.s_out[i] = v + product;
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
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
      for (const bool store_s : {false, true}) {
        for (const size_t n :
             {0, 1, 2, 3, 5, 15, 16, 17, 33, 4095, 4096, 4097, 10000}) {
          SCOPED_TRACE(target + " op " + std::to_string(static_cast<int>(op)) +
                       " n " + std::to_string(n));
          Buffers expected = RandomBuffers(n, n);
          Buffers actual = expected;
          const PassArgs naive = ArgsOf(expected, op, store_s);
          const PassArgs args = ArgsOf(actual, op, store_s);
          std::vector<uint32_t> expected_positions;
          for (size_t i = 0; i < n; ++i) {
            if (std::fabs(NaiveStep(naive, i)) >= 1.5f) {
              expected_positions.push_back(static_cast<uint32_t>(i));
            }
          }
          std::vector<uint32_t> positions;
          ASSERT_TRUE(RunPass(args, 1.5f, &positions));
          EXPECT_EQ(positions, expected_positions);
          EXPECT_EQ(Bits(actual.u_out), Bits(expected.u_out));
          EXPECT_EQ(Bits(actual.v_out), Bits(expected.v_out));
          if (args.s_out != nullptr && op != PassOp::kScan &&
              op != PassOp::kNone) {
            EXPECT_EQ(Bits(actual.s_out), Bits(expected.s_out));
          }
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
          std::vector<uint32_t> positions;
          EXPECT_FALSE(RunPass(ArgsOf(b, op, false), kInfinity, &positions));
        }
      }
    }
  }
}

TEST_F(PassTest, OverflowOfAFiniteGradientIsNotFinite) {
  Buffers b = RandomBuffers(1, 40);
  b.g[39] = b.v[39] = std::numeric_limits<float>::max();
  std::vector<uint32_t> positions;
  EXPECT_FALSE(RunPass(ArgsOf(b, PassOp::kNone, false), kInfinity, &positions));
}

TEST_F(PassTest, InfiniteThresholdFindsNothing) {
  Buffers b = RandomBuffers(1, 5000);
  std::vector<uint32_t> positions;
  EXPECT_TRUE(RunPass(ArgsOf(b, PassOp::kScan, false), kInfinity, &positions));
  EXPECT_THAT(positions, IsEmpty());
}

TEST_F(PassTest, RefusesTargetsItHasNot) {
  EXPECT_FALSE(UsePassTargetForTest("Z80"));
}

}  // namespace
}  // namespace rivulet
