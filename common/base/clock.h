// A clock that tests can replace. Time is used for deadlines, leases and
// measuring only; results never depend on it.

#ifndef RIVULET_COMMON_BASE_CLOCK_H_
#define RIVULET_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace rivulet {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;

  // The machine's clock; lives for the whole process.
  static const Clock* Real();
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_CLOCK_H_
