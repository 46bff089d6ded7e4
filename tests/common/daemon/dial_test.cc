#include "common/daemon/dial.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

DialOptions To(const std::string& peer, absl::Duration timeout) {
  return {.peer = peer, .timeout = timeout, .cancelled = nullptr};
}

TEST(DialTest, OneTryIsEnoughWhereSomebodyAnswers) {
  int tries = 0;
  RV_EXPECT_OK(RetryDial(To("shard 0", absl::Minutes(1)), [&](absl::Time) {
    ++tries;
    return absl::OkStatus();
  }));
  EXPECT_EQ(tries, 1);
}

TEST(DialTest, TriesAgainOnlyWhatTimeMayMend) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "first");
    SCOPED_TRACE(status.ToString());
    int tries = 0;
    const absl::Status result = RetryDial(
        To("shard 0", absl::Minutes(1)),
        [&](absl::Time) { return ++tries == 1 ? status : absl::OkStatus(); });
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      RV_EXPECT_OK(result);
      EXPECT_EQ(tries, 2);
    } else {
      EXPECT_EQ(result, status);
      EXPECT_EQ(tries, 1);
    }
  }
}

TEST(DialTest, PausesGrowFromTryToTry) {
  std::vector<absl::Time> begun;
  RV_EXPECT_OK(RetryDial(To("shard 0", absl::Minutes(1)), [&](absl::Time) {
    begun.push_back(absl::Now());
    return begun.size() < 4 ? absl::UnavailableError("") : absl::OkStatus();
  }));
  ASSERT_EQ(begun.size(), 4u);
  // From 100 ms, doubled each time, less half of it at most by jitter.
  EXPECT_GE(begun[1] - begun[0], absl::Milliseconds(50));
  EXPECT_GE(begun[2] - begun[1], absl::Milliseconds(100));
  EXPECT_GE(begun[3] - begun[2], absl::Milliseconds(200));
}

TEST(DialTest, ATryMayTakeWhatIsLeftButNoMoreThanTwentySeconds) {
  for (const auto& [timeout, longest] :
       {std::pair{absl::Minutes(5), absl::Seconds(20)},
        std::pair{absl::Seconds(3), absl::Seconds(3)}}) {
    const absl::Time before = absl::Now();
    RV_EXPECT_OK(RetryDial(To("shard 0", timeout), [&](absl::Time deadline) {
      EXPECT_GE(deadline, before + longest);
      EXPECT_LE(deadline, absl::Now() + longest);
      return absl::OkStatus();
    }));
  }
}

TEST(DialTest, GivesUpAtTheDeadlineAndSaysWhatItTried) {
  int tries = 0;
  const absl::Time start = absl::Now();
  const absl::Status status =
      RetryDial(To("the controller at h:1", absl::Milliseconds(400)),
                [&](absl::Time deadline) {
                  EXPECT_LE(deadline, absl::Now() + absl::Milliseconds(400));
                  ++tries;
                  return absl::UnavailableError("connection refused");
                });
  // No pause is begun that would outlast the deadline.
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(50));
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(StartsWith("the controller at h:1 could not be reached "
                                "within 400ms ("),
                     HasSubstr(absl::StrCat("(", tries, " tr")),
                     EndsWith("; last error: connection refused"))));
}

TEST(DialTest, WithoutAnyTimeThereIsOneTry) {
  int tries = 0;
  EXPECT_THAT(
      RetryDial(To("shard 0", absl::ZeroDuration()),
                [&](absl::Time deadline) {
                  EXPECT_LE(deadline, absl::Now());
                  ++tries;
                  return absl::DeadlineExceededError("no answer");
                }),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               "shard 0 could not be reached within 0 (1 try); last error: no "
               "answer"));
  EXPECT_EQ(tries, 1);
}

TEST(DialTest, WhoIsToldToStopBeforehandDoesNotTry) {
  DialOptions options = To("shard 0", absl::Minutes(1));
  options.cancelled = [] { return true; };
  EXPECT_THAT(RetryDial(options,
                        [](absl::Time) {
                          ADD_FAILURE() << "tried";
                          return absl::OkStatus();
                        }),
              StatusIs(absl::StatusCode::kCancelled,
                       "told to stop while dialling shard 0 (for 0)"));
}

TEST(DialTest, IsToldToStopDuringAPause) {
  int tries = 0;
  DialOptions options = To("shard 0", absl::Minutes(1));
  options.cancelled = [&] { return tries > 0; };
  EXPECT_THAT(RetryDial(options,
                        [&](absl::Time) {
                          ++tries;
                          return absl::UnavailableError("nobody there");
                        }),
              StatusIs(absl::StatusCode::kCancelled,
                       MatchesRegex("told to stop while dialling shard 0 "
                                    "\\(for .*\\)")));
  EXPECT_EQ(tries, 1);
}

}  // namespace
}  // namespace rivulet
