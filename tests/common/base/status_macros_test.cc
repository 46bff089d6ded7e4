#include "common/base/status_macros.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Twice(int value) {
  RV_ASSIGN_OR_RETURN(std::unique_ptr<int> made, Make(value));
  RV_RETURN_IF_ERROR(*made > 100 ? absl::InternalError("large")
                                 : absl::OkStatus());
  return *made * 2;
}

TEST(StatusMacrosTest, PassValuesAndErrors) {
  EXPECT_THAT(Twice(4), IsOkAndHolds(8));
  EXPECT_THAT(Twice(-1), StatusIs(absl::StatusCode::kOutOfRange, "negative"));
  EXPECT_THAT(Twice(101), StatusIs(absl::StatusCode::kInternal, "large"));
}

TEST(StatusMacrosTest, AnnotateKeepsCodeAndNamesThePlace) {
  EXPECT_THAT(Annotate(absl::NotFoundError("no such file"), "shard 1"),
              StatusIs(absl::StatusCode::kNotFound, "shard 1: no such file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "shard 1").ok());
}

}  // namespace
}  // namespace rivulet
