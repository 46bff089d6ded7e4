#include "common/base/num_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace rivulet {

int CoresOfCpuMax(absl::string_view text) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
  int64_t quota = 0;
  int64_t period = 0;
  if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &quota) ||
      !absl::SimpleAtoi(fields[1], &period) || quota < 1 || period < 1) {
    return 0;
  }
  return static_cast<int>(std::clamp<int64_t>(quota / period, 1, 1 << 20));
}

int NumCores() {
  // Unlike this, libstdc++'s number is that of the machine.
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(std::thread::hardware_concurrency());
  // Where containers see their own group; elsewhere there is no such file.
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string text;
  std::getline(file, text);
  const int quota = CoresOfCpuMax(text);
  return std::max(1, quota > 0 ? std::min(cores, quota) : cores);
}

}  // namespace rivulet
