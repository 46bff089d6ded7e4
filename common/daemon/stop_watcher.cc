#include "common/daemon/stop_watcher.h"

#include <utility>

#include "absl/time/time.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);

}  // namespace

StopWatcher::StopWatcher(std::function<bool()> requested,
                         std::function<void()> on_stop)
    : requested_(std::move(requested)), on_stop_(std::move(on_stop)) {
  if (requested_ != nullptr) thread_ = std::thread([this] { Watch(); });
}

StopWatcher::~StopWatcher() {
  done_.Notify();
  if (thread_.joinable()) thread_.join();
}

void StopWatcher::Watch() {
  while (!requested_()) {
    if (done_.WaitForNotificationWithTimeout(kPoll)) return;
  }
  on_stop_();
}

}  // namespace rivulet
