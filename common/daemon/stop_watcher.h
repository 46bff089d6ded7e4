// Turns a flag that a signal handler has raised into a call, from a thread of
// its own.
//
//   StopWatcher watcher(StopSignalled, [&] { controller.RequestStop("..."); });

#ifndef RIVULET_COMMON_DAEMON_STOP_WATCHER_H_
#define RIVULET_COMMON_DAEMON_STOP_WATCHER_H_

#include <functional>
#include <thread>  // NOLINT(build/c++11)

#include "common/base/sync.h"

namespace rivulet {

class StopWatcher {
 public:
  // Polls `requested` about every 50 ms, calls `on_stop` once when it says so,
  // and is done then. Watches nothing where `requested` is null.
  StopWatcher(std::function<bool()> requested, std::function<void()> on_stop);
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;
  // Waits for a call under way.
  ~StopWatcher();

 private:
  void Watch();

  const std::function<bool()> requested_;
  const std::function<void()> on_stop_;
  Notification done_;
  std::thread thread_;  // last: uses what is above
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_STOP_WATCHER_H_
