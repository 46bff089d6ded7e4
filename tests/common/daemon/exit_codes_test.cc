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

TEST(ExitCodesTest, AnotherProgramsCodeComesBackAsItWas) {
  for (const int code : {kExitOk, kExitFailure, kExitUsage, kExitData,
                         kExitUnavailable, kExitRunFolder, kExitInterrupted}) {
    EXPECT_EQ(ExitCodeFor(absl::Status(StatusCodeOfExit(code), "")), code);
  }
  EXPECT_EQ(StatusCodeOfExit(139), absl::StatusCode::kInternal);
}

TEST(ExitCodesTest, AnEndThatSomebodyAskedForIsNoError) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ReportEnd("rivulet", absl::OkStatus()), 0);
  EXPECT_EQ(ReportEnd("rivulet", absl::CancelledError("stopped at step 4")),
            130);
  EXPECT_EQ(ReportEnd("rivulet", absl::DataLossError("a.bin is cut")), 3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "rivulet: stopped at step 4\nrivulet: error: a.bin is cut\n");
}

}  // namespace
}  // namespace rivulet
