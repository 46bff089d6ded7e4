// Which elements of a tensor are sent: the ceil(density * n) largest
// magnitudes, found by an absolute threshold that is reused from step to step.
//
// What reaches the threshold is sent: about the target k, and k in the mean.
// More than kCap times k (and 2 sqrt(k) beyond it) is trimmed to k by raising
// the threshold within the step, never by position. After each step the
// threshold is corrected from the measured count, by integral control in the
// log domain: its gain is the mean log excess of the sent over the threshold
// (Hill's estimate of 1 / tail index), so that one rule suits heavy tails and
// residuals that error feedback packs just above the threshold. It is found
// anew from a log-magnitude histogram when there is none, and when it admits
// far too many or far too few; that step then sends the k largest exactly. (In
// a tensor of 2^20 elements and more the histogram is of a sample: its
// threshold is good enough to collect the candidates by, from which the k
// largest are taken.)
//
// Ties at the threshold are all sent, up to kMostTies times the target; more
// are all left out, unless nothing else is left: then the lowest positions go
// first. Small tensors (below kExactBelow elements) are selected exactly,
// lowest position first among ties. Zeros are never selected; an empty
// selection is legal.
//
// Deterministic; thread-compatible.

#ifndef RIVULET_COMPRESSION_SELECTOR_H_
#define RIVULET_COMPRESSION_SELECTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compression/pass.h"
#include "compression/values_view.h"

namespace rivulet {

// What a threshold's history amounts to. Part of every checkpoint.
struct SelectorState {
  float threshold = 0;  // 0: none yet
  friend bool operator==(const SelectorState&, const SelectorState&) = default;
};

// The state as a checkpoint's metadata keep it, the threshold's bits in
// decimal, and back to the bit.
std::string FormatSelectorState(const SelectorState& state);
// InvalidArgument for what no selector can have: a threshold that is not finite
// or below 0, or anything else.
absl::StatusOr<SelectorState> ParseSelectorState(absl::string_view text);

class Selector {
 public:
  static constexpr int64_t kExactBelow = 1024;
  static constexpr double kCap = 1.25;
  static constexpr int64_t kMostTies = 4;

  // A selection has two halves, so that one sweep makes the values and finds
  // the candidates: collect those, in order, with |value| >=
  // CandidateThreshold(n), then call SelectFrom, which makes them the selected
  // elements of `values` (all finite), in order. The threshold is infinite (no
  // candidates) when SelectFrom will look at all values anyway.
  float CandidateThreshold(int64_t n) const;
  void SelectFrom(const ValuesView& values, double density,
                  Candidates* candidates);

  const SelectorState& state() const { return state_; }
  void set_state(const SelectorState& state) { state_ = state; }

 private:
  SelectorState state_;
};

// The target count for a density in (0, 1]: ceil(density * n), at least 1 for
// n >= 1. A product that exceeds a whole number by rounding alone
// counts as that number.
int64_t TargetCount(int64_t n, double density);

// The exact rule that thresholds approximate: the `count` largest magnitudes,
// lowest positions first among equals; zeros are never selected. O(n).
Candidates SelectExact(const ValuesView& values, int64_t count);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_SELECTOR_H_
