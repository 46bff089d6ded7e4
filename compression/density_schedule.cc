#include "compression/density_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace rivulet {
namespace {

constexpr int kMaxRungs = 64;

absl::Status CheckShare(const char* name, double value) {
  if (value > 0 && value <= 1) return absl::OkStatus();  // also refuses NaN
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g; allowed: above 0, up to 1", name, value));
}

}  // namespace

absl::Status DensityScheduleOptions::Validate() const {
  for (const auto& [name, value] :
       {std::pair("density", density), std::pair("warmup_start", warmup_start),
        std::pair("warmup_cap", warmup_cap)}) {
    if (absl::Status status = CheckShare(name, value); !status.ok()) {
      return status;
    }
  }
  if (warmup_steps < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "warmup_steps is %d; allowed: 0 (no warm-up) or more", warmup_steps));
  }
  if (warmup_rungs < 1 || warmup_rungs > kMaxRungs) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "warmup_rungs is %d; allowed: 1 to %d", warmup_rungs, kMaxRungs));
  }
  if (total_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("total_steps is %d; allowed: 1 or more", total_steps));
  }
  if (warmup_steps > 0 && std::min(warmup_start, warmup_cap) < density) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the warm-up begins at %g, below density %g; allowed: a ladder that "
        "falls",
        std::min(warmup_start, warmup_cap), density));
  }
  const double smallest =
      std::min(1.0, min_moves / static_cast<double>(total_steps));
  if (density < smallest) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "density %g is too small for a run of %d steps: an entry moves once in "
        "1 / density steps, and should move %g times (min_moves); the smallest "
        "density allowed is %g",
        density, total_steps, min_moves, smallest));
  }
  return absl::OkStatus();
}

double DensityAt(const DensityScheduleOptions& options, int64_t step) {
  RV_CHECK_GE(step, 0);
  if (step >= options.warmup_steps) return options.density;
  // Equal parts; with fewer steps than rungs some rungs are skipped.
  const int64_t rung = std::min<int64_t>(
      static_cast<int64_t>(static_cast<double>(step) * options.warmup_rungs /
                           static_cast<double>(options.warmup_steps)),
      options.warmup_rungs - 1);
  const double fraction =
      static_cast<double>(rung) / static_cast<double>(options.warmup_rungs);
  const double density =
      options.warmup_start *
      std::pow(options.density / options.warmup_start, fraction);
  return std::min(density, options.warmup_cap);
}

}  // namespace rivulet
