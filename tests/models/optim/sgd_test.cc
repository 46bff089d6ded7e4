#include "models/optim/sgd.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

const std::vector<std::vector<float>>& Gradients() {
  static const auto* const kGradients =
      new std::vector<std::vector<float>>{{0.5f, -0.25f, 0.125f},
                                          {-1.0f, 0.75f, 0.3f},
                                          {0.2f, 0.1f, -0.6f},
                                          {0.05f, -0.4f, 0.9f}};
  return *kGradients;
}

std::vector<float> Train(SgdOptions options) {
  std::vector<float> weights = {1.0f, -2.0f, 0.5f};
  Sgd sgd(3, options);
  for (size_t i = 0; i < Gradients().size(); ++i) {
    sgd.Step(0.1 / static_cast<double>(i + 1), Gradients()[i],
             absl::MakeSpan(weights));
  }
  return weights;
}

// torch 1.13.1, with g the gradients above:
//   w = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
//   o = torch.optim.SGD([w], lr=0.1, momentum=M, nesterov=N)
//   for i in range(4):
//       o.param_groups[0]['lr'] = 0.1 / (i + 1); w.grad = g[i].clone();
//       o.step()
TEST(SgdTest, EqualsPyTorch) {
  const struct {
    SgdOptions options;
    std::vector<double> expected;
  } kCases[] = {
      {{.momentum = 0},
       {0.9920833110809326, -2.005833387374878, 0.4699999988079071}},
      {{.momentum = 0.9},
       {0.9927207827568054, -2.02321457862854, 0.45714691281318665}},
      {{.momentum = 0.9, .nesterov = true},
       {0.9855320453643799, -2.026726245880127, 0.43143215775489807}}};
  for (const auto& c : kCases) {
    const std::vector<float> weights = Train(c.options);
    for (size_t i = 0; i < weights.size(); ++i) {
      // PyTorch may fuse multiplication and addition: a few last bits.
      EXPECT_NEAR(weights[i], c.expected[i], 4e-7)
          << "momentum " << c.options.momentum << " element " << i;
    }
  }
}

TEST(SgdTest, ConstantGradientSumsTheGeometricSeries) {
  // Powers of two: every operation is exact. buf_k = 2 - 2^(1-k).
  std::vector<float> weights = {0};
  const std::vector<float> gradient = {1};
  Sgd sgd(1, {.momentum = 0.5});
  double expected = 0;
  double buffer = 0;
  for (int k = 1; k <= 10; ++k) {
    sgd.Step(0.25, gradient, absl::MakeSpan(weights));
    buffer = 2 - 2.0 / (1 << k);
    expected -= 0.25 * buffer;
    EXPECT_EQ(weights[0], expected);
    EXPECT_EQ(sgd.state()[0], buffer);
  }
}

TEST(SgdTest, StateCarriesARunOn) {
  for (const bool nesterov : {false, true}) {
    const SgdOptions options{.momentum = 0.9, .nesterov = nesterov};
    const std::vector<float> whole = Train(options);
    std::vector<float> weights = {1.0f, -2.0f, 0.5f};
    std::vector<float> saved;
    for (size_t i = 0; i < Gradients().size(); ++i) {
      Sgd sgd(3, options);  // a new process each step
      std::copy(saved.begin(), saved.end(), sgd.state().begin());
      sgd.Step(0.1 / static_cast<double>(i + 1), Gradients()[i],
               absl::MakeSpan(weights));
      saved.assign(sgd.state().begin(), sgd.state().end());
    }
    EXPECT_EQ(weights, whole);
  }
}

TEST(SgdTest, PlainSgdKeepsNoState) {
  Sgd sgd(3, {});
  EXPECT_EQ(sgd.size(), 3);
  EXPECT_TRUE(sgd.state().empty());
  EXPECT_EQ(Sgd(3, {.momentum = 0.1}).state().size(), 3u);
}

TEST(SgdTest, TakesNoElements) {
  Sgd sgd(0, {.momentum = 0.9});
  sgd.Step(0.1, {}, {});
  EXPECT_TRUE(sgd.state().empty());
}

TEST(SgdTest, ValidateNamesWhatIsWrong) {
  EXPECT_THAT(SgdOptions().Validate(), IsOk());
  EXPECT_THAT((SgdOptions{.momentum = 0.9, .nesterov = true}.Validate()),
              IsOk());
  for (const double momentum :
       {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(
        SgdOptions{.momentum = momentum}.Validate(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("momentum is")));
  }
  EXPECT_THAT(
      (SgdOptions{.momentum = 0, .nesterov = true}.Validate()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Nesterov")));
}

TEST(SgdDeathTest, DiesOnAWrongSize) {
  Sgd sgd(3, {});
  std::vector<float> weights(3);
  EXPECT_DEATH(sgd.Step(0.1, {1.0f}, absl::MakeSpan(weights)), "1 vs. 3");
}

}  // namespace
}  // namespace rivulet
