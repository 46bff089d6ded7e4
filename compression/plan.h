// How much of a tensor is sent in one step, and how precisely: the unit that
// the schedule and, later, the controller decide in.

#ifndef RIVULET_COMPRESSION_PLAN_H_
#define RIVULET_COMPRESSION_PLAN_H_

#include <cstdint>

#include "absl/status/status.h"

namespace rivulet {

// How values become levels; compression/quantizer.h has the rules.
enum class Rounding {
  kNearest,     // to what loses least; error feedback keeps the rest
  kStochastic,  // unbiased: the expected decoded value is the value
};

// Where the levels of 1 to 4 bits lie.
enum class LevelFit {
  kFitted,  // Lloyd-Max, fitted to the step's own values
  kSteps,   // equal cells above the smallest value sent, at their centroids
};

struct TensorPlan {
  // Share of the elements that are sent, [0, 1]. At 1 all are sent, in order,
  // without positions; at 0 none.
  double density = 1.0;
  // Bits of a value, sign included: 1, 2, 3, 4, 8, 16 or 32; of a tensor that
  // is sent whole 4, 8, 16 or 32.
  int value_bits = 32;
  Rounding rounding = Rounding::kNearest;
  LevelFit level_fit = LevelFit::kFitted;

  // InvalidArgument naming the value that is out of range.
  absl::Status Validate() const;

  bool dense() const { return density >= 1.0; }
  bool silent() const { return density == 0.0; }
  friend bool operator==(const TensorPlan&, const TensorPlan&) = default;
};

// When tensors take turns: the step, of a round of `turns`, in which one of
// `size` elements is sent, with `before` elements of `total` in front of it.
// Neighbours share a turn, and each turn has about the same number of elements.
inline int64_t TurnOf(int64_t before, int64_t size, int64_t total,
                      int64_t turns) {
  return (before + size / 2) * turns / total;
}

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_PLAN_H_
