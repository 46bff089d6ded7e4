#include "common/daemon/exit_codes.h"

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(ExitCodesTest, TellMistakesFromBadLuck) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("")), 3);
  EXPECT_EQ(ExitCodeFor(absl::DataLossError("")), 3);
  EXPECT_EQ(ExitCodeFor(absl::UnavailableError("")), 4);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("")), 4);
  EXPECT_EQ(ExitCodeFor(absl::AlreadyExistsError("")), 5);
  EXPECT_EQ(ExitCodeFor(absl::PermissionDeniedError("")), 5);
  EXPECT_EQ(ExitCodeFor(absl::CancelledError("")), 130);
  EXPECT_EQ(ExitCodeFor(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeFor(absl::UnimplementedError("")), 1);
}

}  // namespace
}  // namespace rivulet
