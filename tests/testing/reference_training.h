// Plain SGD in one process, written without any of the distributed code: the
// oracle that a cluster is held against.

#ifndef RIVULET_TESTS_TESTING_REFERENCE_TRAINING_H_
#define RIVULET_TESTS_TESTING_REFERENCE_TRAINING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/daemon/run_plan.h"

namespace rivulet::testing {

// Trains `steps` steps of `plan`'s model and data with momentum SGD. The global
// batch is computed in `slices` parts, one after the other, whose mean
// gradients are averaged by size: with batch norm this keeps statistics per
// slice, without it the number of slices matters to rounding only. Returns the
// parameters.
absl::StatusOr<std::vector<std::vector<float>>> TrainReference(
    const RunPlan& plan, int64_t steps, int slices);

// The largest ||a - b|| / ||b|| over the tensors.
double LargestRelativeDifference(const std::vector<std::vector<float>>& a,
                                 const std::vector<std::vector<float>>& b);

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_REFERENCE_TRAINING_H_
