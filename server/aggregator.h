// Adds the pushes of one step: the sum over ranks of (samples of the rank /
// samples of all) * decoded values, in fp32 and in rank order, so the result
// does not depend on who came first.
//
//   Aggregator aggregator({300, 200});             // sizes of two segments
//   absl::Span<const float> mean = aggregator.Mean({{.rank = 1, ...}, ...});
//
// No I/O. Thread-compatible.

#ifndef RIVULET_SERVER_AGGREGATOR_H_
#define RIVULET_SERVER_AGGREGATOR_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compression/frame.h"

namespace rivulet {

// What one rank adds to a step. `updates` is borrowed for the call.
struct Contribution {
  int rank = 0;
  int64_t samples = 0;
  absl::Span<const SegmentUpdate> updates;
};

class Aggregator {
 public:
  // `segment_sizes` in elements; segments are laid end to end.
  explicit Aggregator(absl::Span<const int64_t> segment_sizes);

  // The weighted mean over `contributions` (any order, each rank once), [sum of
  // sizes], valid until the next call. A contribution of no samples counts
  // nothing. All zero when there are no samples at all. Segment numbers and
  // positions must be within the table: DecodeFrames checks them.
  absl::Span<const float> Mean(std::vector<Contribution> contributions);

 private:
  std::vector<int64_t> offsets_;  // [segments + 1]
  std::vector<float> sum_;
};

// Samples of all contributions.
int64_t TotalSamples(absl::Span<const Contribution> contributions);

}  // namespace rivulet

#endif  // RIVULET_SERVER_AGGREGATOR_H_
