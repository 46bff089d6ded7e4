// The learning rate as a function of the step: constant, step, cosine or linear
// decay after a linear warm-up.

#ifndef RIVULET_MODELS_OPTIM_SCHEDULE_H_
#define RIVULET_MODELS_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace rivulet {

struct ScheduleOptions {
  enum class Kind { kConstant, kStep, kCosine, kLinear } kind = Kind::kCosine;
  double learning_rate = 0.1;  // peak
  int64_t warmup_steps = 0;    // linear from learning_rate / warmup_steps
  int64_t total_steps = 1;     // cosine and linear end here, at `final_rate`
  double final_rate = 0;
  // kStep: the steps, rising, at which the rate is multiplied by gamma.
  std::vector<int64_t> milestones = {};
  double gamma = 0.1;

  absl::Status Validate() const;  // InvalidArgument naming what is out of range
};

// Rate of step `step` >= 0 (the first step is 0).
double LearningRateAt(const ScheduleOptions& options, int64_t step);

}  // namespace rivulet

#endif  // RIVULET_MODELS_OPTIM_SCHEDULE_H_
