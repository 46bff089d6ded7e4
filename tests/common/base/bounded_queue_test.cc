#include "common/base/bounded_queue.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(BoundedQueueTest, KeepsOrderAcrossThreads) {
  BoundedQueue<int> queue(3);
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(queue.Push(i));
    queue.Close();
  });
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(queue.Pop(), i);
  EXPECT_EQ(queue.Pop(), std::nullopt);
  producer.join();
}

TEST(BoundedQueueTest, CloseWakesABlockedProducer) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  bool pushed = true;
  std::thread producer([&] { pushed = queue.Push(2); });
  queue.Close();
  producer.join();
  EXPECT_FALSE(pushed);
  EXPECT_EQ(queue.Pop(), 1);  // what was there is drained
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, CloseWakesABlockedConsumer) {
  BoundedQueue<int> queue(1);
  std::optional<int> got = 7;
  std::thread consumer([&] { got = queue.Pop(); });
  queue.Close();
  consumer.join();
  EXPECT_EQ(got, std::nullopt);
}

TEST(BoundedQueueTest, TimeoutLeavesTheQueueOpen) {
  BoundedQueue<int> queue(1);
  EXPECT_EQ(queue.PopWithTimeout(absl::Milliseconds(1)), std::nullopt);
  EXPECT_FALSE(queue.closed());
}

}  // namespace
}  // namespace rivulet
