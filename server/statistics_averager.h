// Means of the workers' normalization statistics (running mean and variance of
// all buffers, laid end to end): what every worker evaluates with, and what is
// exported. Added in rank order, in double, so the bits do not depend on who
// came first.
//
// No I/O. Thread-compatible.

#ifndef RIVULET_SERVER_STATISTICS_AVERAGER_H_
#define RIVULET_SERVER_STATISTICS_AVERAGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rivulet {

class StatisticsAverager {
 public:
  // `elements` of all buffers; waits for `ranks` contributions.
  StatisticsAverager(int64_t elements, int ranks);

  // Little-endian fp32. InvalidArgument for another length or values that are
  // not finite; FailedPrecondition for a rank's second contribution that
  // differs from its first. Nothing changes then.
  absl::Status Add(int rank, absl::string_view bytes);

  bool ready() const { return static_cast<int>(by_rank_.size()) == ranks_; }

  // Call when ready: the mean, [elements]; then it waits for the next round.
  std::vector<float> TakeMean();

 private:
  const int64_t elements_;
  const int ranks_;
  std::map<int, std::vector<float>> by_rank_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_STATISTICS_AVERAGER_H_
