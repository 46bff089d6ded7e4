// How many threads can run at once.

#ifndef RIVULET_COMMON_BASE_NUM_CORES_H_
#define RIVULET_COMMON_BASE_NUM_CORES_H_

#include "absl/strings/string_view.h"

namespace rivulet {

// Cores that this process may use, at least 1: those of its affinity mask, or
// fewer where its control group has a smaller share of processor time.
int NumCores();

// Whole cores in the text of a control group's cpu.max, "<quota> <period>", at
// least 1; 0 without a limit, and for any other text.
int CoresOfCpuMax(absl::string_view text);

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_NUM_CORES_H_
