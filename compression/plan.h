// How much of a tensor is sent in one step, and how precisely: the unit that
// the schedule and, later, the controller decide in.

#ifndef RIVULET_COMPRESSION_PLAN_H_
#define RIVULET_COMPRESSION_PLAN_H_

#include <cstdint>

#include "absl/status/status.h"

namespace rivulet {

struct TensorPlan {
  // Share of the elements that are sent, (0, 1]. At 1 all are sent, in order,
  // without positions.
  double density = 1.0;
  // Bits of a value, sign included: 8, 16 or 32.
  int value_bits = 32;

  // InvalidArgument naming the value that is out of range.
  absl::Status Validate() const;

  bool dense() const { return density >= 1.0; }
  friend bool operator==(const TensorPlan&, const TensorPlan&) = default;
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_PLAN_H_
