#include "common/base/nearest_name.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(NearestNameTest, FindsTheFewestEdits) {
  const std::vector<std::string> names = {"resnet20", "resnet110", "mlp"};
  EXPECT_EQ(NearestName("resnet20", names), "resnet20");
  EXPECT_EQ(NearestName("resnt20", names), "resnet20");
  EXPECT_EQ(NearestName("resnet-110", names), "resnet110");
  EXPECT_EQ(NearestName("mpl", names), "mlp");
  EXPECT_EQ(NearestName("", names), "mlp");
}

TEST(NearestNameTest, TakesTheFirstOfSeveral) {
  EXPECT_EQ(NearestName("ab", {"ac", "ad"}), "ac");
  EXPECT_EQ(NearestName("ab", {}), "");
}

}  // namespace
}  // namespace rivulet
