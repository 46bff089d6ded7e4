// A shard that serves on loopback from a thread of the test's, and raw clients
// in the place of workers.

#ifndef RIVULET_TESTS_SERVER_EXCHANGE_TEST_UTIL_H_
#define RIVULET_TESTS_SERVER_EXCHANGE_TEST_UTIL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/sync.h"
#include "common/daemon/grpc_util.h"
#include "gtest/gtest.h"
#include "proto/exchange.grpc.pb.h"
#include "server/exchange_loop.h"
#include "server/listen.h"
#include "server/shard_service.h"
#include "tests/server/server_test_util.h"

namespace rivulet::testing {

inline constexpr char kJob[] = "0123456789abcdef0123456789abcdef";
inline constexpr absl::Duration kPatience = absl::Seconds(20);

// The controller, in memory.
class FakeControl : public ShardControl {
 public:
  uint64_t NewestSeq() const override {
    MutexLock lock(&mu_);
    return entries_.size();
  }
  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(uint64_t seq) override {
    MutexLock lock(&mu_);
    if (seq > entries_.size()) {
      return absl::DeadlineExceededError(absl::StrCat("no entry ", seq));
    }
    return entries_[seq - 1];
  }
  void Send(v1::DaemonMessage message) override {
    MutexLock lock(&mu_);
    sent_.push_back(std::move(message));
  }
  void SetStep(uint64_t) override {}

  void AddEntry(v1::ScheduleEntry entry) {
    MutexLock lock(&mu_);
    entry.set_seq(entries_.size() + 1);
    entries_.push_back(std::move(entry));
  }
  std::vector<v1::DaemonMessage> sent() const {
    MutexLock lock(&mu_);
    return sent_;
  }

 private:
  mutable Mutex mu_;
  std::vector<v1::ScheduleEntry> entries_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::DaemonMessage> sent_ ABSL_GUARDED_BY(mu_);
};

inline v1::ScheduleEntry Mark() {
  v1::ScheduleEntry entry;
  entry.mutable_checkpoint();
  return entry;
}

inline v1::ScheduleEntry StopEntry() {
  v1::ScheduleEntry entry;
  entry.mutable_stop()->set_checkpoint(true);
  return entry;
}

// A shard that serves on loopback from a thread of its own.
class TestShard {
 public:
  // Without `limits`, those of a real shard.
  explicit TestShard(const Config& config, int shard = 0,
                     const std::optional<StreamLimits>& limits = std::nullopt)
      : core_(CoreOf(PlanOf(config), shard)),
        service_(limits.value_or(ExchangeLimits(*core_))) {
    v1::ScheduleEntry view;
    view.mutable_view();
    control_.AddEntry(view);
    ExchangeOptions options;
    options.job = kJob;
    options.config_hash = "config";
    options.manifest_hash = "manifest";
    options.schedule_seq = 1;
    options.save = [this](int64_t step, TensorFile) {
      saved_.push_back(step);
      return absl::OkStatus();
    };
    loop_ = std::make_unique<ExchangeLoop>(core_.get(), &service_.hub(),
                                           &control_, std::move(options));
    auto listener = Listen("127.0.0.1:0", "local.listen", &service_);
    RV_CHECK(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
    thread_ = std::thread([this] { Serve(); });
  }

  ~TestShard() { Stop(); }

  // Ends the loop; afterwards its state may be looked at.
  void Stop() {
    if (!thread_.joinable()) return;
    done_.Notify();
    thread_.join();
    service_.hub().Stop();
    service_.hub().Stop();  // idempotent
    listener_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(200));
    listener_.server->Wait();
  }

  // Waits until a stream has ended on its own, or at a limit of the hub's.
  void WaitForLeft() {
    EXPECT_TRUE(left_.WaitForNotificationWithTimeout(kPatience));
  }

  // Waits for the loop's own failure.
  absl::Status WaitForFailure() {
    failed_.WaitForNotificationWithTimeout(kPatience);
    Stop();
    return failure_;
  }

  const std::string& address() const { return listener_.address; }
  FakeControl& control() { return control_; }
  ShardCore& core() { return *core_; }
  const absl::Status& failure() const { return failure_; }
  const std::vector<int64_t>& saved() const { return saved_; }
  bool finished() const { return loop_->finished(); }

 private:
  void Serve() {
    while (!done_.HasBeenNotified()) {
      auto event = service_.hub().Next(absl::Milliseconds(10));
      if (!event.has_value()) continue;
      const bool left = !event->message.has_value();
      failure_ = loop_->Handle(*std::move(event));
      if (left && !left_.HasBeenNotified()) left_.Notify();
      if (!failure_.ok()) {
        failed_.Notify();
        return;
      }
    }
  }

  std::unique_ptr<ShardCore> core_;
  FakeControl control_;
  ShardService service_;
  std::unique_ptr<ExchangeLoop> loop_;
  Listener listener_;
  std::vector<int64_t> saved_;
  absl::Status failure_;
  Notification done_;
  Notification failed_;
  Notification left_;
  std::thread thread_;
};

inline v1::ExchangeHello Hello(int rank, uint64_t next_step = 0,
                               uint64_t incarnation = 1) {
  v1::ExchangeHello hello;
  hello.set_protocol_min(kOldestProtocolVersion);
  hello.set_protocol_max(kProtocolVersion);
  hello.set_job(kJob);
  hello.set_config_hash("config");
  hello.set_manifest_hash("manifest");
  hello.set_rank(static_cast<uint32_t>(rank));
  hello.set_incarnation(incarnation);
  hello.set_next_step(next_step);
  return hello;
}

// Of a stream that ended where more was expected; never OK.
inline absl::Status EndStatus(const grpc::Status& status) {
  return status.ok() ? absl::InternalError("the shard ended the stream with OK")
                     : FromGrpcStatus(status);
}

// A raw client; gRPC's default message limits.
class Client {
 public:
  explicit Client(const TestShard& shard)
      : stub_(v1::Shard::NewStub(grpc::CreateChannel(
            shard.address(), grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(30));
    stream_ = stub_->Exchange(&context_);
  }
  Client(const TestShard& shard, const v1::ExchangeHello& hello)
      : Client(shard) {
    SayHello(hello);
  }
  ~Client() { context_.TryCancel(); }

  void SayHello(const v1::ExchangeHello& hello) {
    v1::WorkerMessage message;
    *message.mutable_hello() = hello;
    stream_->Write(message);
  }

  // Welcome, or the error that ended the stream.
  absl::StatusOr<v1::ExchangeWelcome> ReadWelcome() {
    v1::ShardMessage message;
    if (!stream_->Read(&message)) return EndStatus(stream_->Finish());
    if (!message.has_welcome()) return absl::InternalError("no welcome");
    return message.welcome();
  }

  void Send(const v1::WorkerMessage& message) { stream_->Write(message); }

  void SendPush(int64_t step, const std::string& bytes,
                const v1::Commit& commit) {
    size_t at = 0;
    do {
      v1::WorkerMessage message;
      v1::Push* push = message.mutable_push();
      push->set_step(static_cast<uint64_t>(step));
      push->set_data(bytes.substr(at, kChunkBytes));
      at += kChunkBytes;
      if (at >= bytes.size()) *push->mutable_commit() = commit;
      if (!stream_->Write(message)) return;
    } while (at < bytes.size());
  }

  absl::StatusOr<ShardUpdate> ReadUpdate() {
    ShardUpdate update;
    while (true) {
      v1::ShardMessage message;
      if (!stream_->Read(&message)) return EndStatus(stream_->Finish());
      if (!message.has_update()) return absl::InternalError("no update");
      EXPECT_LE(message.ByteSizeLong(), size_t{4} << 20);
      update.step = static_cast<int64_t>(message.update().step());
      update.bytes += message.update().data();
      if (message.update().has_end()) {
        update.end = message.update().end();
        return update;
      }
    }
  }

  absl::StatusOr<std::vector<float>> ReadStatistics() {
    v1::ShardMessage message;
    if (!stream_->Read(&message)) return EndStatus(stream_->Finish());
    if (!message.has_statistics()) return absl::InternalError("no statistics");
    std::vector<float> values(message.statistics().data().size() / 4);
    std::memcpy(values.data(), message.statistics().data().data(),
                message.statistics().data().size());
    return values;
  }

  // The status that the shard ends this stream with.
  absl::Status ReadEnd() {
    v1::ShardMessage message;
    while (stream_->Read(&message)) {
    }
    return FromGrpcStatus(stream_->Finish());
  }

  void CloseWrites() { stream_->WritesDone(); }

 private:
  std::unique_ptr<v1::Shard::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::ShardMessage>>
      stream_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_SERVER_EXCHANGE_TEST_UTIL_H_
