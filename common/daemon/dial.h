// Patience while a peer is not there yet: daemons start in any order, and a
// name may resolve before its port listens.

#ifndef RIVULET_COMMON_DAEMON_DIAL_H_
#define RIVULET_COMMON_DAEMON_DIAL_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace rivulet {

struct DialOptions {
  std::string peer;  // in messages: "the controller at 10.0.0.7:7070"
  absl::Duration timeout = absl::Minutes(5);
  // Polled about every 50 ms; true gives up with Cancelled. May be null.
  std::function<bool()> cancelled;
};

// Calls `attempt` until it succeeds, with jittered, capped back-off between
// tries. `attempt` blocks until the absolute time that it is given at most, and
// polls `cancelled` itself. Only Unavailable and DeadlineExceeded are tried
// again; any other error is returned as it is. DeadlineExceeded after `timeout`
// names peer, timeout, tries and the last error.
absl::Status RetryDial(const DialOptions& options,
                       const std::function<absl::Status(absl::Time)>& attempt);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_DIAL_H_
