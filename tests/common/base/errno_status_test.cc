#include "common/base/errno_status.h"

#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;

TEST(ErrnoStatusTest, NamesPathActionAndReason) {
  EXPECT_EQ(ErrnoMessage(ENOENT, "runs/a", "open the folder"),
            "runs/a: cannot open the folder: No such file or directory (errno "
            "2)");
}

TEST(ErrnoStatusTest, CodeFollowsTheReason) {
  using Code = absl::StatusCode;
  const struct {
    int error;
    Code code;
  } kCases[] = {
      {EACCES, Code::kPermissionDenied},  {EPERM, Code::kPermissionDenied},
      {EROFS, Code::kPermissionDenied},   {ENOENT, Code::kNotFound},
      {ENOSPC, Code::kResourceExhausted}, {EDQUOT, Code::kResourceExhausted},
      {EMFILE, Code::kResourceExhausted}, {ENOTDIR, Code::kFailedPrecondition},
      {EISDIR, Code::kFailedPrecondition}};
  for (const auto& c : kCases) {
    EXPECT_THAT(ErrnoToStatus(c.error, "p", "write"),
                StatusIs(c.code, ErrnoMessage(c.error, "p", "write")));
  }
}

}  // namespace
}  // namespace rivulet
