#include "common/daemon/dial.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace rivulet {
namespace {

constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Seconds(2);
// A packet filter that drops silently must not eat the whole budget in one try.
constexpr absl::Duration kLongestTry = absl::Seconds(20);
constexpr absl::Duration kPoll = absl::Milliseconds(50);
constexpr absl::Duration kSayEvery = absl::Seconds(10);

bool Retryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

std::string Rounded(absl::Duration d) {
  return absl::FormatDuration(absl::Trunc(d, absl::Milliseconds(100)));
}

}  // namespace

absl::Status RetryDial(const DialOptions& options,
                       const std::function<absl::Status(absl::Time)>& attempt) {
  // Spreads daemons that were started together; no result depends on it.
  std::minstd_rand jitter{std::random_device{}()};
  const absl::Time start = absl::Now();
  const absl::Time deadline = start + options.timeout;
  absl::Time say_next = start + kSayEvery;
  absl::Duration delay = kFirstDelay;
  const auto cancelled = [&] {
    return options.cancelled != nullptr && options.cancelled();
  };
  const auto gave_up = [&] {
    return absl::CancelledError(
        absl::StrCat("told to stop while dialling ", options.peer, " (for ",
                     Rounded(absl::Now() - start), ")"));
  };
  for (int tries = 1;; ++tries) {
    if (cancelled()) return gave_up();
    absl::Status status =
        attempt(std::min(deadline, absl::Now() + kLongestTry));
    if (!Retryable(status)) return status;
    const absl::Duration pause =
        delay * std::uniform_real_distribution<double>(0.5, 1.0)(jitter);
    delay = std::min(delay * 2, kLongestDelay);
    const absl::Time resume = absl::Now() + pause;
    if (resume >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          options.peer, " could not be reached within ",
          Rounded(options.timeout), " (", tries, tries == 1 ? " try" : " tries",
          "); last error: ", status.message()));
    }
    if (absl::Now() >= say_next) {
      spdlog::info("still dialling {} (for {}): {}", options.peer,
                   Rounded(absl::Now() - start), std::string(status.message()));
      say_next += kSayEvery;
    }
    while (absl::Now() < resume) {
      if (cancelled()) return gave_up();
      absl::SleepFor(std::min(kPoll, resume - absl::Now()));
    }
  }
}

}  // namespace rivulet
