#include "common/daemon/stop_watcher.h"

#include <atomic>
#include <memory>

#include "absl/time/time.h"
#include "common/base/sync.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(StopWatcherTest, CallsOnceWhenTheFlagIsRaised) {
  std::atomic<bool> flag{false};
  std::atomic<int> calls{0};
  Notification called;
  {
    const StopWatcher watcher([&] { return flag.load(); },
                              [&] {
                                ++calls;
                                called.Notify();
                              });
    EXPECT_EQ(calls, 0);
    flag = true;
    EXPECT_TRUE(called.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }
  EXPECT_EQ(calls, 1);
}

TEST(StopWatcherTest, EndsWithoutACallWhereNobodyAsks) {
  const StopWatcher unasked([] { return false; },
                            [] { ADD_FAILURE() << "nobody asked"; });
  const StopWatcher nothing(nullptr, [] { ADD_FAILURE() << "nobody asked"; });
}

}  // namespace
}  // namespace rivulet
