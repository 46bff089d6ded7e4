// Which elements of a tensor are sent: the ceil(density * n) largest magnitudes,
// found by an absolute threshold that is reused from step to step, corrected by
// the measured count and refreshed from a histogram. Small tensors (below
// kExactBelow elements) are selected exactly, lowest position first among ties.
// The count is capped at kCap times the target and trimmed by raising the
// threshold, never by position. An empty selection is legal.
//
// Deterministic; thread-compatible.

#ifndef RIVULET_COMPRESSION_SELECTOR_H_
#define RIVULET_COMPRESSION_SELECTOR_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace rivulet {

// What a threshold's history amounts to. Part of every checkpoint.
struct SelectorState {
  float threshold = 0;        // 0: none yet
  int32_t steps_since_refresh = 0;
  friend bool operator==(const SelectorState&, const SelectorState&) = default;
};

class Selector {
 public:
  static constexpr int64_t kExactBelow = 1024;
  static constexpr int64_t kCap = 4;

  // Positions of the selected elements of `values` (all finite), increasing.
  std::vector<uint32_t> Select(absl::Span<const float> values, double density);

  const SelectorState& state() const { return state_; }
  void set_state(const SelectorState& state) { state_ = state; }

 private:
  SelectorState state_;
};

// The exact rule that thresholds approximate: the `count` largest magnitudes,
// lowest positions first among equals; zeros are never selected. O(n).
std::vector<uint32_t> SelectExact(absl::Span<const float> values,
                                  int64_t count);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_SELECTOR_H_
