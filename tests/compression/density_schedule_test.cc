#include "compression/density_schedule.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

DensityScheduleOptions Ladder() {
  DensityScheduleOptions options;
  options.density = 0.001;
  options.warmup_steps = 400;
  options.total_steps = 20000;
  return options;
}

TEST(DensityScheduleTest, WithoutWarmUpTheDensityIsConstant) {
  DensityScheduleOptions options;
  options.density = 0.03;
  EXPECT_EQ(DensityAt(options, 0), 0.03);
  EXPECT_EQ(DensityAt(options, 1000000), 0.03);
}

TEST(DensityScheduleTest, LadderIsDgcs) {
  const DensityScheduleOptions options = Ladder();
  RV_EXPECT_OK(options.Validate());
  // Lin et al. §3.3: 25, 6.25, 1.5625, 0.4, 0.1 %.
  EXPECT_NEAR(DensityAt(options, 0), 0.25, 1e-12);
  EXPECT_NEAR(DensityAt(options, 99), 0.25, 1e-12);
  EXPECT_NEAR(DensityAt(options, 100), 0.0625, 0.0005);
  EXPECT_NEAR(DensityAt(options, 200), 0.015625, 0.0003);
  EXPECT_NEAR(DensityAt(options, 300), 0.004, 0.0001);
  EXPECT_NEAR(DensityAt(options, 399), 0.004, 0.0001);
  EXPECT_EQ(DensityAt(options, 400), 0.001);
}

TEST(DensityScheduleTest, RungsAreGeometricAndNeverRise) {
  const DensityScheduleOptions options = Ladder();
  for (int rung = 1; rung <= 4; ++rung) {
    EXPECT_NEAR(
        DensityAt(options, 100 * rung) / DensityAt(options, 100 * rung - 1),
        std::pow(0.001 / 0.25, 0.25), 1e-9);
  }
  for (int step = 1; step < 500; ++step) {
    EXPECT_LE(DensityAt(options, step), DensityAt(options, step - 1));
  }
}

TEST(DensityScheduleTest, CapHoldsOnTheFirstRungs) {
  DensityScheduleOptions options = Ladder();
  options.warmup_cap = 0.01;
  EXPECT_EQ(DensityAt(options, 0), 0.01);
  EXPECT_EQ(DensityAt(options, 250), 0.01);
  EXPECT_NEAR(DensityAt(options, 300), 0.004, 0.0001);
}

TEST(DensityScheduleTest, FewerStepsThanRungsSkipRungs) {
  DensityScheduleOptions options = Ladder();
  options.warmup_steps = 2;
  EXPECT_NEAR(DensityAt(options, 0), 0.25, 1e-12);
  EXPECT_NEAR(DensityAt(options, 1), 0.0158, 0.0001);
  EXPECT_EQ(DensityAt(options, 2), 0.001);
}

TEST(DensityScheduleTest, DensityThatDoesNotFitTheRunIsRefused) {
  DensityScheduleOptions options;
  options.density = 0.001;
  options.total_steps = 500;
  EXPECT_THAT(options.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("smallest density allowed is 0.02")));
  options.density = 0.02;
  EXPECT_THAT(options.Validate(), IsOk());
  // A dense run may be as short as it likes.
  options.density = 1;
  options.total_steps = 3;
  EXPECT_THAT(options.Validate(), IsOk());
}

TEST(DensityScheduleTest, ValuesOutOfRangeAreRefusedByName) {
  const auto refused = [](const char* name, auto change) {
    DensityScheduleOptions options = Ladder();
    change(options);
    EXPECT_THAT(options.Validate(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  using O = DensityScheduleOptions;
  refused("density", [](O& o) { o.density = 0; });
  refused("density", [](O& o) { o.density = 1.01; });
  refused("density",
          [](O& o) { o.density = std::numeric_limits<double>::quiet_NaN(); });
  refused("warmup_start", [](O& o) { o.warmup_start = -1; });
  refused("warmup_cap", [](O& o) { o.warmup_cap = 2; });
  refused("warm-up begins at 0.0001", [](O& o) { o.warmup_start = 0.0001; });
  refused("warm-up begins at 0.0002", [](O& o) { o.warmup_cap = 0.0002; });
  refused("warmup_steps", [](O& o) { o.warmup_steps = -1; });
  refused("warmup_rungs", [](O& o) { o.warmup_rungs = 0; });
  refused("total_steps", [](O& o) { o.total_steps = 0; });
}

}  // namespace
}  // namespace rivulet
