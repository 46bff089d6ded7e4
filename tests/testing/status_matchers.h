// Matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(DoIt(), IsOk());
//   EXPECT_THAT(Parse("x"), StatusIs(absl::StatusCode::kInvalidArgument,
//   HasSubstr("x"))); EXPECT_THAT(Answer(), IsOkAndHolds(42));
//   RV_ASSERT_OK_AND_ASSIGN(auto value, Compute());

#ifndef RIVULET_TESTS_TESTING_STATUS_MATCHERS_H_
#define RIVULET_TESTS_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet::testing {

inline const absl::Status& GetStatus(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status) {
  return status.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) +
               " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::Matches(message)(std::string(status.message()));
}

inline auto StatusIs(absl::StatusCode code) {
  return StatusIs(code, ::testing::_);
}

MATCHER_P(IsOkAndHolds, value, "is OK and holds the value") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace rivulet::testing

#define RV_ASSERT_OK(expr) ASSERT_THAT((expr), ::rivulet::testing::IsOk())
#define RV_EXPECT_OK(expr) EXPECT_THAT((expr), ::rivulet::testing::IsOk())

#define RV_ASSERT_OK_AND_ASSIGN(lhs, expr)                                    \
  RV_ASSERT_OK_AND_ASSIGN_IMPL_(RV_STATUS_CONCAT_(rv_assert_, __LINE__), lhs, \
                                expr)
#define RV_ASSERT_OK_AND_ASSIGN_IMPL_(statusor, lhs, expr)    \
  auto statusor = (expr);                                     \
  ASSERT_TRUE(statusor.ok()) << statusor.status().ToString(); \
  lhs = *std::move(statusor)

#endif  // RIVULET_TESTS_TESTING_STATUS_MATCHERS_H_
