#include "common/daemon/client_stream.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sync.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/controller.grpc.pb.h"
#include "tests/testing/narrow_windows.h"
#include "tests/testing/scripted_service.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tcp_relay.h"

namespace rivulet {
namespace {

using ::rivulet::testing::NarrowChannel;
using ::rivulet::testing::NarrowWindows;
using ::rivulet::testing::ScriptedController;
using ::rivulet::testing::ScriptedServer;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TcpRelay;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Stream = ClientStream<v1::DaemonMessage, v1::ControllerMessage>;
using PeerSide =
    grpc::ServerReaderWriter<v1::ControllerMessage, v1::DaemonMessage>;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr int64_t kLimit = 64 << 20;

// Numbered, and filled up to about `bytes`.
v1::DaemonMessage Question(uint64_t number, int64_t bytes = 0) {
  v1::DaemonMessage message;
  message.mutable_weights()->set_begin(number);
  message.mutable_weights()->set_data(
      std::string(static_cast<size_t>(bytes), 'q'));
  return message;
}
v1::ControllerMessage Answer(uint64_t number, size_t bytes = 0) {
  v1::ControllerMessage message;
  message.mutable_finish()->set_code(static_cast<int>(number));
  message.mutable_finish()->set_message(std::string(bytes, 'a'));
  return message;
}

// Answers each question with its number, until no more come.
grpc::Status Echo(PeerSide* stream) {
  v1::DaemonMessage message;
  while (stream->Read(&message)) {
    stream->Write(Answer(message.weights().begin()));
  }
  return grpc::Status::OK;
}

// A stream to "the peer", and what its listener was told.
class TestStream : public Stream::Listener {
 public:
  using Handler = std::function<absl::Status(uint64_t number)>;

  explicit TestStream(const std::string& address, int64_t limit = kLimit)
      : stub_(v1::Controller::NewStub(NarrowChannel(address))),
        stream_("the peer", limit, this) {}
  ~TestStream() override { stream_.Close(absl::ZeroDuration()); }

  // What OnMessage does beside keeping the number.
  void SetHandler(Handler handler) { handler_ = std::move(handler); }
  void Start() {
    stub_->async()->Session(stream_.context(), &stream_);
    stream_.Start();
  }
  Stream& operator*() { return stream_; }
  Stream* operator->() { return &stream_; }

  void WaitForMessages(size_t count) {
    const absl::Time deadline = absl::Now() + kPatience;
    MutexLock lock(&mu_);
    while (numbers_.size() < count && absl::Now() < deadline) {
      changed_.WaitWithTimeout(&mu_, deadline - absl::Now());
    }
    EXPECT_GE(numbers_.size(), count);
  }
  // What OnEnd got, once it has been called.
  absl::Status WaitForEnd() {
    EXPECT_TRUE(ended_.WaitForNotificationWithTimeout(kPatience));
    MutexLock lock(&mu_);
    return end_;
  }
  std::vector<uint64_t> numbers() {
    MutexLock lock(&mu_);
    return numbers_;
  }
  int ends() {
    MutexLock lock(&mu_);
    return ends_;
  }

 private:
  absl::Status OnMessage(v1::ControllerMessage message) override {
    const auto number = static_cast<uint64_t>(message.finish().code());
    {
      MutexLock lock(&mu_);
      EXPECT_EQ(ends_, 0) << "the end comes last";
      numbers_.push_back(number);
      changed_.SignalAll();
    }
    return handler_ == nullptr ? absl::OkStatus() : handler_(number);
  }
  int64_t PayloadBytes(const v1::ControllerMessage& message) const override {
    return static_cast<int64_t>(message.finish().message().size());
  }
  void OnEnd(const absl::Status& status) override {
    {
      MutexLock lock(&mu_);
      end_ = status;
      if (++ends_ > 1) return;
    }
    ended_.Notify();
  }

  Handler handler_;
  Mutex mu_;
  CondVar changed_;
  std::vector<uint64_t> numbers_ ABSL_GUARDED_BY(mu_);
  absl::Status end_ ABSL_GUARDED_BY(mu_);
  int ends_ ABSL_GUARDED_BY(mu_) = 0;
  Notification ended_;
  const std::unique_ptr<v1::Controller::Stub> stub_;
  Stream stream_;
};

TEST(ClientStreamTest, CarriesMessagesInOrderBothWaysAndEndsInOrder) {
  const ScriptedServer<ScriptedController> server(Echo);
  TestStream stream(server.address());
  stream.Start();
  for (uint64_t i = 0; i < 10; ++i) stream->Write(Question(i), 0);
  stream.WaitForMessages(10);
  stream->Close(kPatience);
  EXPECT_THAT(stream.numbers(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  RV_EXPECT_OK(stream.WaitForEnd());
  stream->Close(kPatience);
  stream->Write(Question(10), 0);  // dropped
  stream->Cancel(absl::InternalError("late"));
  stream->Close(absl::ZeroDuration());
  RV_EXPECT_OK(stream.WaitForEnd());
  EXPECT_EQ(stream.ends(), 1);
}

TEST(ClientStreamTest, CloseDeliversWhatIsQueuedAndWaitsForThePeersWord) {
  std::atomic<int> read{0};
  const ScriptedServer<ScriptedController> server([&](PeerSide* stream) {
    v1::DaemonMessage message;
    while (stream->Read(&message)) ++read;
    stream->Write(Answer(77));
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "the last is damaged");
  });
  TestStream stream(server.address());
  stream.Start();
  for (uint64_t i = 0; i < 20; ++i) stream->Write(Question(i, kChunkBytes), 0);
  stream->Close(kPatience);
  EXPECT_EQ(read, 20);
  EXPECT_EQ(stream.ends(), 1) << "Close waits for OnEnd";
  EXPECT_THAT(stream.numbers(), ElementsAre(77));
  EXPECT_THAT(stream.WaitForEnd(), StatusIs(absl::StatusCode::kDataLoss,
                                            "the peer: the last is damaged"));
}

TEST(ClientStreamTest, WhatIsUrgentGoesAheadOfWhatWaits) {
  const ScriptedServer<ScriptedController> server(Echo);
  TestStream stream(server.address());
  stream->Write(Question(1), 0);  // waits for the start
  stream->Write(Question(2), 0);
  stream->WriteFirst(Question(3));
  stream.Start();
  stream.WaitForMessages(3);
  EXPECT_THAT(stream.numbers(), ElementsAre(3, 1, 2));
}

TEST(ClientStreamTest, ThePeersEndIsNamed) {
  struct Case {
    grpc::Status end;
    absl::Status expected;
  };
  for (const Case& c :
       {Case{grpc::Status::OK, absl::OkStatus()},
        Case{grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another job"),
             absl::FailedPreconditionError("the peer: another job")},
        Case{grpc::Status(grpc::StatusCode::ABORTED, ""),
             absl::AbortedError("the peer: ended with ABORTED")}}) {
    SCOPED_TRACE(c.expected.ToString());
    const ScriptedServer<ScriptedController> server([&](PeerSide* stream) {
      v1::DaemonMessage message;
      stream->Read(&message);
      stream->Write(Answer(5));
      return c.end;
    });
    TestStream stream(server.address());
    stream.Start();
    stream->Write(Question(1), 0);
    EXPECT_EQ(stream.WaitForEnd(), c.expected);
    EXPECT_THAT(stream.numbers(), ElementsAre(5)) << "what it said before";
    stream->Write(Question(2), 0);  // dropped
    stream->Close(kPatience);
    EXPECT_EQ(stream.ends(), 1);
  }
}

TEST(ClientStreamTest, AnAddressWhereNobodyAnswersIsUnavailable) {
  TestStream stream("127.0.0.1:1");
  stream.Start();
  stream->Write(Question(1), 0);
  EXPECT_THAT(stream.WaitForEnd(), StatusIs(absl::StatusCode::kUnavailable,
                                            StartsWith("the peer: ")));
}

TEST(ClientStreamTest, AConnectionThatBreaksIsUnavailable) {
  const ScriptedServer<ScriptedController> server(Echo);
  RV_ASSERT_OK_AND_ASSIGN(auto relay, TcpRelay::Start(server.address()));
  TestStream stream(relay->address());
  stream.Start();
  stream->Write(Question(1), 0);
  stream.WaitForMessages(1);
  relay->CutConnections();
  EXPECT_THAT(stream.WaitForEnd(), StatusIs(absl::StatusCode::kUnavailable,
                                            StartsWith("the peer: ")));
}

// Reads nothing until the test is over.
class DeafPeer {
 public:
  ~DeafPeer() { over_.Notify(); }
  const std::string& address() const { return server_.address(); }

 private:
  Notification over_;
  const ScriptedServer<ScriptedController> server_{
      [this](PeerSide*) {
        over_.WaitForNotification();
        return grpc::Status::OK;
      },
      NarrowWindows};
};

TEST(ClientStreamTest, APeerThatDoesNotReadEndsTheStreamAtTheLimit) {
  const auto bytes =
      static_cast<int64_t>(Question(1, kChunkBytes).ByteSizeLong());
  const DeafPeer peer;
  TestStream stream(peer.address(), 3 * bytes);
  stream.Start();
  // The first is being written, and waits no more; three are the limit.
  for (uint64_t i = 1; i <= 4; ++i) stream->Write(Question(i, kChunkBytes), 0);
  EXPECT_EQ(stream.ends(), 0);
  stream->WriteFirst(Question(5));
  const int64_t small = static_cast<int64_t>(Question(5).ByteSizeLong());
  EXPECT_THAT(stream.WaitForEnd(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("the peer: ", 3 * bytes + small,
                                    " bytes wait to be sent, the limit is ",
                                    3 * bytes, "; it does not read")));
  stream->Write(Question(6), 0);  // dropped
  stream->Close(kPatience);
  EXPECT_EQ(stream.ends(), 1);
}

TEST(ClientStreamTest, CloseGivesUpAPeerThatDoesNotAnswer) {
  const DeafPeer peer;
  for (const bool queued : {false, true}) {
    SCOPED_TRACE(queued ? "with what it does not read" : "with nothing queued");
    TestStream stream(peer.address());
    stream.Start();
    if (queued) {
      for (uint64_t i = 0; i < 4; ++i) {
        stream->Write(Question(i, kChunkBytes), 0);
      }
    }
    const absl::Time start = absl::Now();
    stream->Close(absl::Milliseconds(50));
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(50));
    EXPECT_EQ(stream.ends(), 1);
    EXPECT_THAT(stream.WaitForEnd(),
                StatusIs(absl::StatusCode::kCancelled, "the peer: closed"));
  }
}

TEST(ClientStreamTest, CancelEndsAtOnceWithItsFirstReason) {
  const DeafPeer peer;
  TestStream stream(peer.address());
  stream.Start();
  for (uint64_t i = 0; i < 4; ++i) stream->Write(Question(i, kChunkBytes), 0);
  stream->Cancel(absl::AbortedError("the run has ended"));
  stream->Cancel(absl::InternalError("later"));
  EXPECT_THAT(stream.WaitForEnd(),
              StatusIs(absl::StatusCode::kAborted, "the run has ended"));
}

TEST(ClientStreamTest, WhatTheListenerRefusesEndsTheStreamAndIsTheLast) {
  // More often than once: what follows may be there already, or not.
  for (int round = 0; round < 20; ++round) {
    const ScriptedServer<ScriptedController> server([](PeerSide* stream) {
      for (uint64_t i = 1; i <= 10; ++i) stream->Write(Answer(i));
      v1::DaemonMessage message;
      stream->Read(&message);
      return grpc::Status::OK;
    });
    TestStream stream(server.address());
    stream.SetHandler([](uint64_t number) {
      return number < 3 ? absl::OkStatus()
                        : absl::InternalError(absl::StrCat("not ", number));
    });
    stream.Start();
    EXPECT_THAT(stream.WaitForEnd(),
                StatusIs(absl::StatusCode::kInternal, "not 3"));
    EXPECT_THAT(stream.numbers(), ElementsAre(1, 2, 3));
  }
}

TEST(ClientStreamTest, APeerIsReadOnlyAsFastAsTheListenerTakes) {
  constexpr int kMessages = 40;
  std::atomic<int> written{0};
  const ScriptedServer<ScriptedController> server([&](PeerSide* stream) {
    for (int i = 0; i < kMessages; ++i) {
      stream->Write(Answer(static_cast<uint64_t>(i), 1 << 20));
      ++written;
    }
    return grpc::Status::OK;
  });
  TestStream stream(server.address());
  Notification go_on;
  stream.SetHandler([&](uint64_t) {
    go_on.WaitForNotificationWithTimeout(kPatience);
    return absl::OkStatus();
  });
  stream.Start();
  stream.WaitForMessages(1);
  // What must not happen cannot be waited for.
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_THAT(stream.numbers(), SizeIs(1)) << "one call at a time";
  EXPECT_LE(written, 2);
  go_on.Notify();
  RV_EXPECT_OK(stream.WaitForEnd());
  EXPECT_THAT(stream.numbers(), SizeIs(kMessages));
}

TEST(ClientStreamTest, CountsWhatGoesOverTheWire) {
  const ScriptedServer<ScriptedController> server([](PeerSide* stream) {
    v1::DaemonMessage message;
    while (stream->Read(&message)) {
    }
    stream->Write(Answer(1, 30000));
    stream->Write(Answer(2, 5));
    return grpc::Status::OK;
  });
  TestStream stream(server.address());
  stream.Start();
  stream->Write(Question(1, 20000), 20000);
  stream->WriteFirst(Question(2, 10));
  stream->Close(kPatience);
  const auto wire = [](const auto& message) {
    return WireBytes(static_cast<int64_t>(message.ByteSizeLong()));
  };
  EXPECT_EQ(stream->sent().wire(),
            wire(Question(1, 20000)) + wire(Question(2, 10)));
  EXPECT_EQ(stream->sent().payload(), 20000);
  EXPECT_EQ(stream->received().wire(),
            wire(Answer(1, 30000)) + wire(Answer(2, 5)));
  EXPECT_EQ(stream->received().payload(), 30005);
}

TEST(ClientStreamTest, AStreamThatWasNeverStartedGoesQuietly) {
  TestStream stream("127.0.0.1:1");
  stream->Write(Question(1), 0);
  stream->Close(kPatience);
  EXPECT_EQ(stream.ends(), 0);
  EXPECT_THAT(stream.numbers(), IsEmpty());
}

TEST(ClientStreamTest, EndsWhileItIsBusy) {
  enum class By { kClose, kCancel, kPeer };
  for (const By by : {By::kClose, By::kCancel, By::kPeer}) {
    SCOPED_TRACE(static_cast<int>(by));
    Notification end;
    const ScriptedServer<ScriptedController> server([&](PeerSide* stream) {
      v1::DaemonMessage message;
      while (stream->Read(&message)) {
        stream->Write(Answer(message.weights().begin()));
        if (end.HasBeenNotified()) break;
      }
      return end.HasBeenNotified()
                 ? grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "enough")
                 : grpc::Status::OK;
    });
    TestStream stream(server.address());
    stream.Start();
    std::atomic<bool> over{false};
    std::vector<std::thread> writers;
    for (int i = 0; i < 2; ++i) {
      writers.emplace_back([&] {
        for (uint64_t n = 0; !over; ++n) {
          // Small, and no faster than answers come, so that the limit is far.
          stream->Write(Question(n, 1000), 1000);
          while (!over && stream.numbers().size() + 100 < n) {
            std::this_thread::yield();
          }
        }
      });
    }
    stream.WaitForMessages(50);
    switch (by) {
      case By::kClose:
        stream->Close(kPatience);
        RV_EXPECT_OK(stream.WaitForEnd());
        break;
      case By::kCancel:
        stream->Cancel(absl::AbortedError("over"));
        EXPECT_THAT(stream.WaitForEnd(),
                    StatusIs(absl::StatusCode::kAborted, "over"));
        break;
      case By::kPeer:
        end.Notify();
        EXPECT_THAT(stream.WaitForEnd(), StatusIs(absl::StatusCode::kOutOfRange,
                                                  "the peer: enough"));
        break;
    }
    over = true;
    for (std::thread& writer : writers) writer.join();
    stream->Close(kPatience);
    EXPECT_EQ(stream.ends(), 1);
  }
}

}  // namespace
}  // namespace rivulet
