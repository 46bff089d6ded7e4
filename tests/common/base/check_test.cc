#include "common/base/check.h"

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(CheckTest, PassesSilently) {
  RV_CHECK(true) << "unused";
  RV_CHECK_EQ(1 + 1, 2);
}

TEST(CheckDeathTest, DiesWithPlaceConditionAndMessage) {
  EXPECT_DEATH(RV_CHECK(1 > 2) << "of tensor fc.weight",
               "check_test.cc:.*check failed: 1 > 2 of tensor fc.weight");
}

TEST(CheckDeathTest, DiesWithBothValues) {
  const int rows = 3;
  EXPECT_DEATH(RV_CHECK_EQ(rows, 4), "rows.*3 vs. 4");
}

TEST(CheckTest, BindsToItsOwnIf) {
  // An `else` after a checked `if` must belong to that `if`.
  bool reached = false;
  if (false)
    RV_CHECK(true);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

}  // namespace
}  // namespace rivulet
