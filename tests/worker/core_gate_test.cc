#include "worker/core_gate.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(CoreGateTest, NoMoreThanItsCoresHoldItAtOnce) {
  CoreGate gate(2);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  const auto compute = [&] {
    int now = ++inside;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    --inside;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      const CoreGate::Hold hold(&gate);
      for (int i = 0; i < 200; ++i) {
        compute();
        const CoreGate::Pause pause(&gate);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(most, 1);
  EXPECT_LE(most, 2);
}

// With one core, a thread that waits for another must not keep it from coming.
TEST(CoreGateTest, APauseLetsAnotherIn) {
  CoreGate gate(1);
  Notification done;
  const CoreGate::Hold hold(&gate);
  std::thread other([&] {
    const CoreGate::Hold own(&gate);
    done.Notify();
  });
  {
    const CoreGate::Pause pause(&gate);
    done.WaitForNotification();
  }
  other.join();
}

TEST(CoreGateTest, WithoutAGateNothingWaits) {
  const CoreGate::Hold hold(nullptr);
  const CoreGate::Pause pause(nullptr);
}

}  // namespace
}  // namespace rivulet
