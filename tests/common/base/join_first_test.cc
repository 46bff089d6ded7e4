#include "common/base/join_first.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(JoinFirstTest, SaysHowManyItLeavesOut) {
  const std::vector<int> items = {3, 1, 4, 1, 5};
  EXPECT_EQ(JoinFirst(items, 2, ", "), "3, 1 and 3 more");
  EXPECT_EQ(JoinFirst(items, 4, "; "), "3; 1; 4; 1 and 1 more");
  EXPECT_EQ(JoinFirst(items, 5, ", "), "3, 1, 4, 1, 5");
  EXPECT_EQ(JoinFirst(items, 9, ", "), "3, 1, 4, 1, 5");
  EXPECT_EQ(JoinFirst(std::vector<std::string>(), 3, ", "), "");
}

}  // namespace
}  // namespace rivulet
