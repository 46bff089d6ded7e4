#include "models/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {
namespace {

double DecayedRate(const ScheduleOptions& options, int64_t step) {
  const double peak = options.learning_rate;
  if (options.kind == ScheduleOptions::Kind::kConstant) return peak;
  if (options.kind == ScheduleOptions::Kind::kStep) {
    double rate = peak;
    for (const int64_t milestone : options.milestones) {
      if (step >= milestone) rate *= options.gamma;
    }
    return rate;
  }
  if (step >= options.total_steps) return options.final_rate;
  if (step <= options.warmup_steps) return peak;
  const double done =
      static_cast<double>(step - options.warmup_steps) /
      static_cast<double>(options.total_steps - options.warmup_steps);
  const double left = options.kind == ScheduleOptions::Kind::kCosine
                          ? 0.5 * (1 + std::cos(std::numbers::pi * done))
                          : 1 - done;
  return options.final_rate + (peak - options.final_rate) * left;
}

}  // namespace

absl::Status ScheduleOptions::Validate() const {
  if (!std::isfinite(learning_rate) || learning_rate <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "learning rate is ", learning_rate, ", allowed is a number above 0"));
  }
  if (warmup_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "warm-up steps are ", warmup_steps, ", allowed is at least 0"));
  }
  if (total_steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "total steps are ", total_steps, ", allowed is at least 1"));
  }
  if (!std::isfinite(final_rate) || final_rate < 0 ||
      final_rate > learning_rate) {
    return absl::InvalidArgumentError(
        absl::StrCat("final rate is ", final_rate,
                     ", allowed is 0 to the learning rate, ", learning_rate));
  }
  if (!std::isfinite(gamma) || gamma <= 0 || gamma > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gamma is ", gamma, ", allowed is above 0 and at most 1"));
  }
  int64_t previous = 0;
  for (const int64_t milestone : milestones) {
    if (milestone <= previous) {
      return absl::InvalidArgumentError(
          absl::StrCat("milestone ", milestone, " follows ", previous,
                       ", allowed are steps above 0 in rising order"));
    }
    previous = milestone;
  }
  return absl::OkStatus();
}

double LearningRateAt(const ScheduleOptions& options, int64_t step) {
  RV_CHECK_GE(step, 0);
  const double rate = DecayedRate(options, step);
  if (step >= options.warmup_steps) return rate;
  return rate * static_cast<double>(step + 1) /
         static_cast<double>(options.warmup_steps);
}

}  // namespace rivulet
