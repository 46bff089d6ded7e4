// Which density a step has, as a function of the step alone: fixed, or DGC's
// warm-up ladder (Lin et al. §3.3: 25, 6.25, 1.5625, 0.4 %, then the target;
// here in equal ratios from the first rung to the target), optionally capped,
// since the first rungs carry half of a run's bytes.

#ifndef RIVULET_COMPRESSION_DENSITY_SCHEDULE_H_
#define RIVULET_COMPRESSION_DENSITY_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace rivulet {

struct DensityScheduleOptions {
  double density = 0.001;      // after warm-up, (0, 1]
  int64_t warmup_steps = 0;    // 0: no ladder
  double warmup_start = 0.25;  // first rung
  double warmup_cap = 1.0;     // no rung is above it
  int warmup_rungs = 4;        // rungs before the target, geometric
  int64_t total_steps = 0;     // of the run
  double min_moves = 10;       // of an entry in the run; 0: any density fits

  // InvalidArgument for values out of range, and for a density below min_moves
  // / total_steps: an entry moves once in 1 / density steps.
  absl::Status Validate() const;
};

// Density of step `step` >= 0.
double DensityAt(const DensityScheduleOptions& options, int64_t step);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_DENSITY_SCHEDULE_H_
