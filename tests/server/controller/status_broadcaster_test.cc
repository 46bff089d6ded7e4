// The broadcaster behind a real gRPC server on loopback.

#include "server/controller/status_broadcaster.h"

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/sync.h"
#include "common/daemon/grpc_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/controller.grpc.pb.h"
#include "server/listen.h"
#include "tests/testing/narrow_windows.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::NarrowChannel;
using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);

v1::RunStatus StatusAt(uint64_t step, size_t bytes = 0) {
  v1::RunStatus status;
  status.set_step(step);
  status.set_message(std::string(bytes, 's'));
  return status;
}

class WatchService final : public v1::Controller::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::RunStatus>* Watch(
      grpc::CallbackServerContext*, const v1::WatchRequest*) override {
    return broadcaster_.Accept();
  }
  StatusBroadcaster& broadcaster() { return broadcaster_; }

 private:
  StatusBroadcaster broadcaster_;
};

class StatusBroadcasterTest : public ::testing::Test {
 protected:
  StatusBroadcasterTest() {
    auto listener = Listen("127.0.0.1:0", "cluster.controller", &service_);
    RV_CHECK(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
  }
  ~StatusBroadcasterTest() override {
    broadcaster().Close();
    listener_.server->Shutdown(std::chrono::system_clock::now());
    listener_.server->Wait();
  }

  StatusBroadcaster& broadcaster() { return service_.broadcaster(); }
  const std::string& address() const { return listener_.address; }
  void WaitForWatchers(int count) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (broadcaster().num_watchers() != count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(broadcaster().num_watchers(), count);
  }

 private:
  WatchService service_;
  Listener listener_;
};

class Watcher {
 public:
  explicit Watcher(const std::string& address)
      : stub_(v1::Controller::NewStub(NarrowChannel(address))) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(30));
    reader_ = stub_->Watch(&context_, v1::WatchRequest());
  }
  ~Watcher() { Cancel(); }

  void Cancel() { context_.TryCancel(); }
  // The step of the next status; nothing at the end.
  std::optional<uint64_t> Read() {
    v1::RunStatus status;
    if (!reader_->Read(&status)) return std::nullopt;
    return status.step();
  }
  std::vector<uint64_t> ReadAll() {
    std::vector<uint64_t> steps;
    while (const auto step = Read()) steps.push_back(*step);
    return steps;
  }
  absl::Status Finish() { return FromGrpcStatus(reader_->Finish()); }

 private:
  std::unique_ptr<v1::Controller::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::RunStatus>> reader_;
};

TEST_F(StatusBroadcasterTest, AWatcherGetsTheNewestAtOnceAndThenEachChange) {
  broadcaster().Publish(StatusAt(1));
  broadcaster().Publish(StatusAt(2));
  Watcher early(address());
  EXPECT_EQ(early.Read(), 2u);
  broadcaster().Publish(StatusAt(3));
  EXPECT_EQ(early.Read(), 3u);
  Watcher late(address());
  EXPECT_EQ(late.Read(), 3u);
  EXPECT_EQ(broadcaster().num_watchers(), 2);
  broadcaster().Publish(StatusAt(4));
  EXPECT_EQ(early.Read(), 4u);
  EXPECT_EQ(late.Read(), 4u);
}

TEST_F(StatusBroadcasterTest, AWatcherThatComesFirstWaitsForTheFirstStatus) {
  Watcher watcher(address());
  WaitForWatchers(1);
  broadcaster().Publish(StatusAt(7));
  broadcaster().Close();
  EXPECT_THAT(watcher.ReadAll(), ElementsAre(7));
  RV_EXPECT_OK(watcher.Finish());
}

TEST_F(StatusBroadcasterTest, CloseEndsEveryWatcherAfterTheNewest) {
  broadcaster().Publish(StatusAt(1));
  Watcher a(address());
  Watcher b(address());
  EXPECT_EQ(a.Read(), 1u);
  EXPECT_EQ(b.Read(), 1u);
  broadcaster().Publish(StatusAt(2));
  broadcaster().Close();
  broadcaster().Close();
  for (Watcher* watcher : {&a, &b}) {
    EXPECT_THAT(watcher->ReadAll(), ElementsAre(2));
    RV_EXPECT_OK(watcher->Finish());
  }
  Watcher late(address());
  EXPECT_THAT(late.ReadAll(), ElementsAre(2)) << "how it ended";
  RV_EXPECT_OK(late.Finish());
  WaitForWatchers(0);
  broadcaster().Publish(StatusAt(3));  // nobody is there
}

TEST_F(StatusBroadcasterTest, CloseBeforeAnyStatusEndsWithoutOne) {
  Watcher watcher(address());
  WaitForWatchers(1);
  broadcaster().Close();
  EXPECT_EQ(watcher.Read(), std::nullopt);
  RV_EXPECT_OK(watcher.Finish());
}

TEST_F(StatusBroadcasterTest, AWatcherThatDoesNotReadSkipsWhatIsOld) {
  // Larger than HTTP/2's windows: the first is being written until it is read.
  constexpr size_t kLarge = 1 << 20;
  broadcaster().Publish(StatusAt(0, kLarge));
  Watcher slow(address());
  WaitForWatchers(1);
  Watcher quick(address());
  EXPECT_EQ(quick.Read(), 0u);
  for (uint64_t step = 1; step < 50; ++step) {
    broadcaster().Publish(StatusAt(step, kLarge));
  }
  broadcaster().Close();
  EXPECT_THAT(slow.ReadAll(), ElementsAre(0, 49));
  RV_EXPECT_OK(slow.Finish());
  // One that reads is not held up by it.
  EXPECT_EQ(quick.ReadAll().back(), 49u);
}

TEST_F(StatusBroadcasterTest, AWatcherThatLeavesIsForgotten) {
  broadcaster().Publish(StatusAt(1));
  Watcher stays(address());
  EXPECT_EQ(stays.Read(), 1u);
  {
    Watcher idle(address());
    EXPECT_EQ(idle.Read(), 1u);
    Watcher never_read(address());
    WaitForWatchers(3);
  }
  WaitForWatchers(1);
  broadcaster().Publish(StatusAt(2));
  EXPECT_EQ(stays.Read(), 2u);
  {
    Watcher in_a_write(address());
    WaitForWatchers(2);
    broadcaster().Publish(StatusAt(3, 1 << 20));
    broadcaster().Publish(StatusAt(4));
  }
  WaitForWatchers(1);
}

TEST_F(StatusBroadcasterTest, ClosesWhileWatchersComeReadAndGo) {
  broadcaster().Publish(StatusAt(0));
  Notification busy;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this, i, &busy] {
      for (int round = 0; round < 20; ++round) {
        Watcher watcher(address());
        uint64_t last = 0;
        for (int reads = 1; const auto step = watcher.Read(); ++reads) {
          EXPECT_GE(*step, last);
          last = *step;
          if (reads == 3 && round < 10) watcher.Cancel();
        }
        if (i == 0 && round == 5) busy.Notify();
      }
    });
  }
  std::thread publisher([&] {
    for (uint64_t step = 1; !busy.HasBeenNotified(); ++step) {
      broadcaster().Publish(StatusAt(step, 100));
    }
    broadcaster().Close();
  });
  publisher.join();
  for (std::thread& thread : threads) thread.join();
  WaitForWatchers(0);
}

}  // namespace
}  // namespace rivulet
