#include "models/optim/schedule.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;
using Kind = ScheduleOptions::Kind;

TEST(ScheduleTest, ConstantStaysConstant) {
  const ScheduleOptions options{.kind = Kind::kConstant, .learning_rate = 0.3};
  for (const int64_t step : {0, 1, 1000000}) {
    EXPECT_EQ(LearningRateAt(options, step), 0.3);
  }
}

TEST(ScheduleTest, WarmupIsLinearAndEndsAtThePeak) {
  for (const Kind kind :
       {Kind::kConstant, Kind::kStep, Kind::kCosine, Kind::kLinear}) {
    const ScheduleOptions options{.kind = kind,
                                  .learning_rate = 0.8,
                                  .warmup_steps = 4,
                                  .total_steps = 20};
    EXPECT_DOUBLE_EQ(LearningRateAt(options, 0), 0.2);
    EXPECT_DOUBLE_EQ(LearningRateAt(options, 1), 0.4);
    EXPECT_DOUBLE_EQ(LearningRateAt(options, 2), 0.6);
    EXPECT_DOUBLE_EQ(LearningRateAt(options, 3), 0.8);
    EXPECT_DOUBLE_EQ(LearningRateAt(options, 4), 0.8);
  }
}

// torch 1.13.1:
//   o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
//   s = torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=8, eta_min=0.01)
//   for i in range(9): print(o.param_groups[0]['lr']); o.step(); s.step()
TEST(ScheduleTest, CosineEqualsPyTorchs) {
  const std::vector<double> expected = {
      0.1,   0.0965745789630079,  0.08681980515339463,  0.07222075445642905,
      0.055, 0.03777924554357096, 0.023180194846605363, 0.013425421036992097,
      0.01};
  const ScheduleOptions options{.kind = Kind::kCosine,
                                .learning_rate = 0.1,
                                .total_steps = 8,
                                .final_rate = 0.01};
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(LearningRateAt(options, static_cast<int64_t>(step)),
                expected[step], 1e-15)
        << step;
  }
}

TEST(ScheduleTest, CosineAfterWarmupHalvesInTheMiddle) {
  const ScheduleOptions options{.kind = Kind::kCosine,
                                .learning_rate = 1,
                                .warmup_steps = 10,
                                .total_steps = 110};
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 60), 0.5);
  EXPECT_EQ(LearningRateAt(options, 110), 0);
  EXPECT_EQ(LearningRateAt(options, 5000), 0);
  for (int64_t step = 10; step < 110; ++step) {
    EXPECT_GT(LearningRateAt(options, step), LearningRateAt(options, step + 1));
  }
}

TEST(ScheduleTest, LinearFallsEvenly) {
  const ScheduleOptions options{.kind = Kind::kLinear,
                                .learning_rate = 1.1,
                                .warmup_steps = 5,
                                .total_steps = 15,
                                .final_rate = 0.1};
  for (int64_t step = 5; step <= 15; ++step) {
    EXPECT_NEAR(LearningRateAt(options, step),
                1.1 - 0.1 * static_cast<double>(step - 5), 1e-12);
  }
  EXPECT_EQ(LearningRateAt(options, 16), 0.1);
}

TEST(ScheduleTest, StepMultipliesAtItsMilestones) {
  const ScheduleOptions options{.kind = Kind::kStep,
                                .learning_rate = 1,
                                .milestones = {10, 20},
                                .gamma = 0.5};
  EXPECT_EQ(LearningRateAt(options, 9), 1);
  EXPECT_EQ(LearningRateAt(options, 10), 0.5);
  EXPECT_EQ(LearningRateAt(options, 19), 0.5);
  EXPECT_EQ(LearningRateAt(options, 20), 0.25);
}

TEST(ScheduleTest, WarmupLongerThanTheRunStaysFinite) {
  const ScheduleOptions options{.kind = Kind::kCosine,
                                .learning_rate = 1,
                                .warmup_steps = 10,
                                .total_steps = 10};
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 8), 0.9);
  EXPECT_EQ(LearningRateAt(options, 10), 0);
}

TEST(ScheduleTest, ValidateNamesWhatIsWrong) {
  const auto refused = [](ScheduleOptions options, const char* reason) {
    EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr(reason)));
  };
  EXPECT_THAT(ScheduleOptions().Validate(), IsOk());
  refused({.learning_rate = 0}, "learning rate is 0");
  refused({.learning_rate = std::numeric_limits<double>::quiet_NaN()},
          "learning rate is nan");
  refused({.warmup_steps = -1}, "warm-up steps are -1");
  refused({.total_steps = 0}, "total steps are 0");
  refused({.learning_rate = 0.1, .final_rate = 0.2}, "final rate is 0.2");
  refused({.final_rate = -1}, "final rate is -1");
  refused({.gamma = 0}, "gamma is 0");
  refused({.gamma = 1.5}, "gamma is 1.5");
  refused({.milestones = {5, 5}}, "milestone 5 follows 5");
  refused({.milestones = {0}}, "milestone 0");
}

}  // namespace
}  // namespace rivulet
