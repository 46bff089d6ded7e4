// The hub behind a real gRPC server on loopback, with raw clients; the test is
// the owner that takes the events.

#include "server/stream_hub.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/sync.h"
#include "common/daemon/grpc_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/exchange.grpc.pb.h"
#include "server/shard_service.h"
#include "tests/testing/narrow_windows.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::NarrowChannel;
using ::rivulet::testing::NarrowWindows;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Numbered, and filled up to about `bytes`.
v1::WorkerMessage Question(uint64_t number, size_t bytes = 0) {
  v1::WorkerMessage message;
  message.mutable_push()->set_step(number);
  message.mutable_push()->set_data(std::string(bytes, 'q'));
  return message;
}
std::shared_ptr<const v1::ShardMessage> Answer(uint64_t number,
                                               size_t bytes = 0) {
  auto message = std::make_shared<v1::ShardMessage>();
  message->mutable_update()->set_step(number);
  message->mutable_update()->set_data(std::string(bytes, 'a'));
  return message;
}

// Far beyond what HTTP/2's windows hold of a stream that nobody reads.
constexpr size_t kLarge = 1 << 20;

// No stranger is ended, however slow the machine.
StreamLimits Patient() {
  StreamLimits limits;
  limits.patience = absl::InfiniteDuration();
  return limits;
}

class TestServer {
 public:
  explicit TestServer(const StreamLimits& limits = Patient())
      : service_(limits) {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    NarrowWindows(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    RV_CHECK(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~TestServer() {
    hub().Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  ExchangeHub& hub() { return service_.hub(); }
  const std::string& address() const { return address_; }

  // The next event, which must come.
  ExchangeHub::Event Take() {
    std::optional<ExchangeHub::Event> event = hub().Next(kPatience);
    RV_CHECK(event.has_value());
    return *std::move(event);
  }
  // Its number; the stream is admitted and goes into `stream`.
  uint64_t TakeQuestion(StreamId* stream = nullptr) {
    const ExchangeHub::Event event = Take();
    RV_CHECK(event.message.has_value());
    hub().Admit(event.stream);
    if (stream != nullptr) *stream = event.stream;
    return event.message->push().step();
  }
  // Until gRPC has let go of all streams but `count`.
  void WaitForStreams(size_t count) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (hub().num_streams() != count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(hub().num_streams(), count);
  }

 private:
  ShardService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class Client {
 public:
  explicit Client(const TestServer& server)
      : stub_(v1::Shard::NewStub(NarrowChannel(server.address()))) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(30));
    stream_ = stub_->Exchange(&context_);
  }
  ~Client() { Cancel(); }

  bool Send(uint64_t number, size_t bytes = 0) {
    return stream_->Write(Question(number, bytes));
  }
  void CloseWrites() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // Of the next answer; nothing where the stream ends instead.
  std::optional<uint64_t> Read() {
    v1::ShardMessage message;
    if (!stream_->Read(&message)) return std::nullopt;
    return message.update().step();
  }
  // The numbers of all answers up to the end of the stream.
  std::vector<uint64_t> ReadAll() {
    std::vector<uint64_t> numbers;
    while (const auto number = Read()) numbers.push_back(*number);
    return numbers;
  }
  // What the stream ended with, once all is read.
  absl::Status Finish() { return FromGrpcStatus(stream_->Finish()); }
  absl::Status ReadEnd() {
    ReadAll();
    return Finish();
  }

 private:
  std::unique_ptr<v1::Shard::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::ShardMessage>>
      stream_;
};

// Writes large questions as fast as they are read, until the stream ends.
class Flood {
 public:
  explicit Flood(Client* client)
      : thread_([this, client] {
          while (client->Send(static_cast<uint64_t>(written_), kLarge))
            ++written_;
        }) {}
  ~Flood() { thread_.join(); }

  int written() const { return written_; }
  void WaitFor(int count) const {
    const absl::Time deadline = absl::Now() + kPatience;
    while (written_ < count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_GE(written_, count);
  }

 private:
  std::atomic<int> written_{0};
  std::thread thread_;
};

TEST(StreamHubTest, MessagesOfAllClientsComeInTheirOrderAndAnswersGoBack) {
  TestServer server;
  Client a(server);
  Client b(server);
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(a.Send(i));
    ASSERT_TRUE(b.Send(100 + i));
  }
  std::vector<uint64_t> of_a;
  std::vector<uint64_t> of_b;
  for (int i = 0; i < 20; ++i) {
    StreamId stream;
    const uint64_t number = server.TakeQuestion(&stream);
    (number < 100 ? of_a : of_b).push_back(number);
    EXPECT_THAT(server.hub().Peer(stream), HasSubstr("127.0.0.1:"));
    server.hub().Send(stream, Answer(number + 1000));
  }
  EXPECT_THAT(of_a, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(of_b,
              ElementsAre(100, 101, 102, 103, 104, 105, 106, 107, 108, 109));
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(a.Read(), 1000 + i);
    EXPECT_EQ(b.Read(), 1100 + i);
  }
}

TEST(StreamHubTest, AnAnswerMayBeSharedAmongStreams) {
  TestServer server;
  Client a(server);
  Client b(server);
  ASSERT_TRUE(a.Send(0));
  ASSERT_TRUE(b.Send(0));
  StreamId streams[2];
  for (StreamId& stream : streams) server.TakeQuestion(&stream);
  const auto shared = Answer(7, kLarge);
  for (const StreamId stream : streams) {
    server.hub().Send(stream, shared);
    server.hub().End(stream, absl::OkStatus());
  }
  EXPECT_THAT(a.ReadAll(), ElementsAre(7));
  EXPECT_THAT(b.ReadAll(), ElementsAre(7));
  server.WaitForStreams(0);
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(StreamHubTest, AClientThatSendsNoMoreIsStillAnswered) {
  TestServer server;
  Client client(server);
  ASSERT_TRUE(client.Send(1));
  client.CloseWrites();
  StreamId stream;
  server.TakeQuestion(&stream);
  const ExchangeHub::Event left = server.Take();
  EXPECT_EQ(left.stream, stream);
  EXPECT_FALSE(left.message.has_value());
  server.hub().Send(stream, Answer(1));
  server.hub().Send(stream, Answer(2));
  server.hub().End(stream, absl::OkStatus());
  server.hub().Send(stream, Answer(3));  // after the end: dropped
  EXPECT_THAT(client.ReadAll(), ElementsAre(1, 2));
  RV_EXPECT_OK(client.Finish());
}

TEST(StreamHubTest, NothingComesForAWhileAndThenNextReturns) {
  TestServer server;
  EXPECT_FALSE(server.hub().Next(absl::ZeroDuration()).has_value());
  EXPECT_FALSE(server.hub().Next(absl::Milliseconds(5)).has_value());
}

TEST(StreamHubTest, AnErrorDropsWhatIsUnwrittenAndTheFirstEndCounts) {
  TestServer server;
  Client client(server);
  ASSERT_TRUE(client.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  // The client does not read, so the first is being written.
  for (uint64_t i = 0; i < 5; ++i) server.hub().Send(stream, Answer(i, kLarge));
  server.hub().End(stream, absl::AbortedError("incarnation 2 took over"));
  server.hub().End(stream, absl::OkStatus());
  server.hub().End(stream, absl::InternalError("later"));
  EXPECT_THAT(client.ReadAll(), ElementsAre(0));
  EXPECT_THAT(client.Finish(),
              StatusIs(absl::StatusCode::kAborted, "incarnation 2 took over"));
  server.WaitForStreams(0);
}

TEST(StreamHubTest, AStreamThatWasEndedHasNoMoreEvents) {
  TestServer server;
  Client ended(server);
  ASSERT_TRUE(ended.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  for (uint64_t i = 2; i < 6; ++i) ASSERT_TRUE(ended.Send(i));
  ended.CloseWrites();
  server.TakeQuestion();  // 2; others may wait behind it
  server.hub().End(stream, absl::CancelledError("enough"));
  EXPECT_THAT(ended.ReadEnd(),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
  Client other(server);
  ASSERT_TRUE(other.Send(77));
  EXPECT_EQ(server.TakeQuestion(), 77u);
  EXPECT_FALSE(server.hub().Next(absl::ZeroDuration()).has_value());
}

TEST(StreamHubTest, AClientThatGoesAwayIsAnEventAndHarmsNobody) {
  TestServer server;
  StreamId gone;
  {
    Client client(server);
    ASSERT_TRUE(client.Send(1));
    server.TakeQuestion(&gone);
    server.hub().Send(gone, Answer(1, kLarge));  // it does not read
    server.hub().Send(gone, Answer(2, kLarge));
  }
  const ExchangeHub::Event left = server.Take();
  EXPECT_EQ(left.stream, gone);
  EXPECT_FALSE(left.message.has_value());
  server.hub().Send(gone, Answer(3));
  server.hub().End(gone, absl::OkStatus());
  server.WaitForStreams(0);
  server.hub().Send(gone, Answer(4));
  server.hub().End(gone, absl::InternalError("late"));
  server.hub().Admit(gone);
  EXPECT_EQ(server.hub().Peer(gone), "");
}

TEST(StreamHubTest, AStreamIsReadNoFurtherThanItsLimit) {
  StreamLimits limits = Patient();
  limits.max_unread = 3;
  TestServer server(limits);
  Client client(server);
  ASSERT_TRUE(client.Send(100));
  server.TakeQuestion();
  const Flood flood(&client);
  flood.WaitFor(3);
  // What must not happen cannot be waited for; one more may lie in windows.
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_LE(flood.written(), 4);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(server.TakeQuestion(), i);
  flood.WaitFor(13);
  client.Cancel();
}

TEST(StreamHubTest, AStrangerIsReadOneMessageAtATime) {
  StreamLimits limits = Patient();
  limits.max_unread = 3;
  TestServer server(limits);
  Client client(server);
  const Flood flood(&client);
  flood.WaitFor(1);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_LE(flood.written(), 2);
  const ExchangeHub::Event first = server.Take();
  EXPECT_EQ(first.message->push().step(), 0u);
  flood.WaitFor(2);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_LE(flood.written(), 3);
  server.hub().Admit(first.stream);
  server.hub().Admit(first.stream);  // idempotent
  flood.WaitFor(4);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_LE(flood.written(), 5);
  client.Cancel();
}

TEST(StreamHubTest, AStrangerIsEndedWhenItsPatienceIsOverAndAMemberIsNot) {
  StreamLimits limits;
  limits.patience = absl::Seconds(1);
  TestServer server(limits);
  Client member(server);
  ASSERT_TRUE(member.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  Client silent(server);
  Notification ended;
  std::thread reader([&] {
    EXPECT_THAT(silent.ReadEnd(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                           "no valid hello within 1s"));
    ended.Notify();
  });
  const absl::Time deadline = absl::Now() + kPatience;
  while (!ended.HasBeenNotified() && absl::Now() < deadline) {
    EXPECT_FALSE(server.hub().Next(absl::Milliseconds(10)).has_value());
  }
  reader.join();
  server.hub().End(stream, absl::OkStatus());
  RV_EXPECT_OK(member.ReadEnd());
}

TEST(StreamHubTest, AStreamTooManyIsRefusedAndThePlaceOfOneThatLeftIsFree) {
  StreamLimits limits = Patient();
  limits.max_streams = 2;
  TestServer server(limits);
  Client a(server);
  Client b(server);
  ASSERT_TRUE(a.Send(1));
  ASSERT_TRUE(b.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  server.TakeQuestion();
  Client refused(server);
  EXPECT_THAT(refused.ReadEnd(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "too many streams: 3 with this one, the limit is 2"));
  server.hub().End(stream, absl::OkStatus());
  server.WaitForStreams(1);
  Client again(server);
  ASSERT_TRUE(again.Send(5));
  EXPECT_EQ(server.TakeQuestion(), 5u);
}

// A client that does not read: the first answer is being written, the others
// wait.
TEST(StreamHubTest, AnswersBeyondTheirNumberEndTheStream) {
  StreamLimits limits = Patient();
  limits.max_unwritten = 3;
  TestServer server(limits);
  Client client(server);
  ASSERT_TRUE(client.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  for (uint64_t i = 0; i < 5; ++i) server.hub().Send(stream, Answer(i, kLarge));
  const ExchangeHub::Event left = server.Take();
  EXPECT_EQ(left.stream, stream);
  EXPECT_FALSE(left.message.has_value());
  EXPECT_FALSE(server.hub().Next(absl::ZeroDuration()).has_value()) << "once";
  EXPECT_THAT(client.ReadAll(), ElementsAre(0));
  const absl::Status end = client.Finish();
  EXPECT_THAT(
      end,
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("4 answers of "), HasSubstr("wait to be read"),
                     HasSubstr("the limit is 3 and 67108864 bytes"))));
  EXPECT_EQ(left.reason, end);
}

TEST(StreamHubTest, AnswersBeyondTheirBytesEndTheStream) {
  const auto bytes = static_cast<int64_t>(Answer(1, kLarge)->ByteSizeLong());
  StreamLimits limits = Patient();
  limits.max_unwritten_bytes = 2 * bytes;
  TestServer server(limits);
  // As many as there are where the client reads. The write of one may end a
  // little after the client has it.
  Client reading(server);
  ASSERT_TRUE(reading.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  for (uint64_t i = 0; i < 10; ++i) {
    server.hub().Send(stream, Answer(i, kLarge));
    EXPECT_EQ(reading.Read(), i);
  }
  Client slow(server);
  ASSERT_TRUE(slow.Send(1));
  server.TakeQuestion(&stream);
  // Two fit, a third does not; the last ones come after the end.
  for (uint64_t i = 1; i < 6; ++i) {
    server.hub().Send(stream, Answer(i, kLarge));
  }
  EXPECT_THAT(slow.ReadAll(), ElementsAre(1));
  EXPECT_THAT(
      slow.Finish(),
      StatusIs(absl::StatusCode::kResourceExhausted,
               absl::StrCat("3 answers of ", 3 * bytes,
                            " bytes wait to be read, the limit is 65536 and ",
                            2 * bytes, " bytes")));
}

TEST(StreamHubTest, StopEndsEveryStreamAndRefusesNewOnes) {
  TestServer server;
  Client member(server);
  ASSERT_TRUE(member.Send(1));
  StreamId stream;
  server.TakeQuestion(&stream);
  Client stranger(server);
  ASSERT_TRUE(stranger.Send(2));
  EXPECT_EQ(server.Take().message->push().step(), 2u);
  Client ended(server);
  ASSERT_TRUE(ended.Send(3));
  StreamId third;
  server.TakeQuestion(&third);
  server.hub().End(third, absl::DataLossError("damaged"));
  Notification returned;
  std::thread owner([&] {
    EXPECT_FALSE(server.hub().Next(absl::InfiniteDuration()).has_value());
    returned.Notify();
  });
  server.hub().Stop();
  server.hub().Stop();
  EXPECT_TRUE(returned.WaitForNotificationWithTimeout(kPatience));
  owner.join();
  const auto stopped =
      StatusIs(absl::StatusCode::kUnavailable, "shutting down");
  EXPECT_THAT(member.ReadEnd(), stopped);
  EXPECT_THAT(stranger.ReadEnd(), stopped);
  EXPECT_THAT(ended.ReadEnd(), StatusIs(absl::StatusCode::kDataLoss));
  Client late(server);
  EXPECT_THAT(late.ReadEnd(), stopped);
  EXPECT_FALSE(server.hub().Next(kPatience).has_value()) << "and at once";
}

TEST(StreamHubTest, StopsWhileEverybodyIsBusy) {
  for (int round = 0; round < 5; ++round) {
    TestServer server;
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<Client>(server));
      Client* const client = clients.back().get();
      threads.emplace_back([client] {
        for (uint64_t n = 0; client->Send(n, 100000); ++n) {
        }
      });
      threads.emplace_back([client] { client->ReadAll(); });
    }
    Notification busy;
    threads.emplace_back([&] {
      for (int taken = 0; const auto event = server.hub().Next(kPatience);) {
        server.hub().Admit(event->stream);
        if (++taken > 200) continue;
        server.hub().Send(event->stream, Answer(1, 100000));
        if (taken == 50) busy.Notify();
      }
    });
    EXPECT_TRUE(busy.WaitForNotificationWithTimeout(kPatience));
    server.hub().Stop();
    for (std::thread& thread : threads) thread.join();
    for (const auto& client : clients) {
      EXPECT_THAT(client->Finish(),
                  StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
    }
    server.WaitForStreams(0);
  }
}

}  // namespace
}  // namespace rivulet
