// A first-in, first-out queue of bounded length between threads. A full queue
// blocks its producer: that is the back pressure between stages.
//
// Thread-safe. Close() wakes everybody: pushes then fail, pops drain what is
// left and then fail.

#ifndef RIVULET_COMMON_BASE_BOUNDED_QUEUE_H_
#define RIVULET_COMMON_BASE_BOUNDED_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/sync.h"

namespace rivulet {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {
    RV_CHECK_GT(capacity, 0u);
  }

  // Blocks while full. False, and `item` is dropped, once closed.
  bool Push(T item) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (!closed_ && items_.size() >= capacity_) not_full_.Wait(&mu_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    not_empty_.Signal();
    return true;
  }

  // Blocks while empty. Nothing once closed and drained.
  std::optional<T> Pop() ABSL_LOCKS_EXCLUDED(mu_) {
    return PopWithTimeout(absl::InfiniteDuration());
  }

  // As Pop, but gives up after `timeout`. Tell a time-out from a closed queue
  // by closed().
  std::optional<T> PopWithTimeout(absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = timeout == absl::InfiniteDuration()
                                    ? absl::InfiniteFuture()
                                    : absl::Now() + timeout;
    MutexLock lock(&mu_);
    while (items_.empty() && !closed_) {
      if (deadline == absl::InfiniteFuture()) {
        not_empty_.Wait(&mu_);
        continue;
      }
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return std::nullopt;
      not_empty_.WaitWithTimeout(&mu_, left);
    }
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    not_full_.Signal();
    return item;
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    closed_ = true;
    not_empty_.SignalAll();
    not_full_.SignalAll();
  }

  bool closed() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return closed_;
  }

 private:
  const size_t capacity_;
  mutable Mutex mu_;
  CondVar not_empty_;
  CondVar not_full_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_BOUNDED_QUEUE_H_
