#include "worker/exchange_client.h"

#include <atomic>
#include <cstring>
#include <thread>  // NOLINT(build/c++11)

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/sync.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/narrow_windows.h"
#include "tests/testing/scripted_service.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::NarrowWindows;
using ::rivulet::testing::ScriptedServer;
using ::rivulet::testing::ScriptedShard;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ShardSide = grpc::ServerReaderWriter<v1::ShardMessage, v1::WorkerMessage>;

constexpr int64_t kElements = 1 << 20;

ExchangeClient::Options OptionsFor(const std::string& address) {
  ExchangeClient::Options options;
  options.shard = 1;
  options.address = address;
  options.hello.set_protocol_min(kOldestProtocolVersion);
  options.hello.set_protocol_max(kProtocolVersion);
  options.hello.set_next_step(5);
  options.connect_timeout = absl::Seconds(10);
  options.elements = kElements;
  options.statistics = 3;
  return options;
}

v1::ShardMessage Welcome(uint32_t shard = 1, uint64_t version = 5) {
  v1::ShardMessage message;
  message.mutable_welcome()->set_protocol(kProtocolVersion);
  message.mutable_welcome()->set_shard(shard);
  message.mutable_welcome()->set_version(version);
  return message;
}

v1::ShardMessage Piece(uint64_t step, const std::string& data, bool last) {
  v1::ShardMessage message;
  message.mutable_update()->set_step(step);
  message.mutable_update()->set_data(data);
  if (last) message.mutable_update()->mutable_end()->set_version(step + 1);
  return message;
}

// Reads the hello and welcomes.
void Greet(ShardSide* stream) {
  v1::WorkerMessage hello;
  ASSERT_TRUE(stream->Read(&hello));
  ASSERT_TRUE(hello.has_hello());
  stream->Write(Welcome());
}

void Drain(ShardSide* stream) {
  v1::WorkerMessage message;
  while (stream->Read(&message)) {
  }
}

TEST(ExchangeClientTest, NamesAnAddressWhereNobodyAnswers) {
  ExchangeClient::Options options = OptionsFor("127.0.0.1:1");
  options.connect_timeout = absl::Milliseconds(300);
  EXPECT_THAT(ExchangeClient::Connect(options),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("shard 1 at 127.0.0.1:1")));
}

TEST(ExchangeClientTest, NamesAPeerThatAcceptsAndSaysNothing) {
  ScriptedServer<ScriptedShard> server([](ShardSide* stream) {
    Drain(stream);
    return grpc::Status::OK;
  });
  ExchangeClient::Options options = OptionsFor(server.address());
  options.connect_timeout = absl::Milliseconds(200);
  EXPECT_THAT(
      ExchangeClient::Connect(options),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr(server.address()), HasSubstr("no answer"))));
}

TEST(ExchangeClientTest, StopsDiallingWhenTold) {
  ExchangeClient::Options options = OptionsFor("127.0.0.1:1");
  std::atomic<int> polls{0};
  options.cancelled = [&] { return ++polls > 3; };
  EXPECT_THAT(ExchangeClient::Connect(options),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST(ExchangeClientTest, TakesARefusalAsFinal) {
  std::atomic<int> calls{0};
  ScriptedServer<ScriptedShard> server([&](ShardSide* stream) {
    ++calls;
    v1::WorkerMessage hello;
    stream->Read(&hello);
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another job");
  });
  EXPECT_THAT(ExchangeClient::Connect(OptionsFor(server.address())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("shard 1"), HasSubstr("another job"))));
  EXPECT_EQ(calls, 1);
}

TEST(ExchangeClientTest, TriesAgainWhileTheShardIsUnavailable) {
  std::atomic<int> calls{0};
  ScriptedServer<ScriptedShard> server([&](ShardSide* stream) {
    if (++calls == 1) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "loading");
    }
    Greet(stream);
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK(ExchangeClient::Connect(OptionsFor(server.address())));
  EXPECT_EQ(calls, 2);
}

TEST(ExchangeClientTest, RefusesAnotherShardOrStep) {
  ScriptedServer<ScriptedShard> other([](ShardSide* stream) {
    stream->Write(Welcome(2));
    Drain(stream);
    return grpc::Status::OK;
  });
  EXPECT_THAT(ExchangeClient::Connect(OptionsFor(other.address())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("says it is shard 2")));
  ScriptedServer<ScriptedShard> later([](ShardSide* stream) {
    stream->Write(Welcome(1, 6));
    Drain(stream);
    return grpc::Status::OK;
  });
  EXPECT_THAT(ExchangeClient::Connect(OptionsFor(later.address())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("collects step 6, this worker begins at 5")));
}

TEST(ExchangeClientTest, CutsAPushAndPutsAnUpdateTogether) {
  const std::string frames(kChunkBytes * 2 + 17, 'x');
  std::vector<size_t> sizes;
  std::vector<bool> commits;
  bool boundary = false;
  ScriptedServer<ScriptedShard> server([&](ShardSide* stream) {
    Greet(stream);
    v1::WorkerMessage message;
    while (stream->Read(&message) && message.has_push()) {
      sizes.push_back(message.push().data().size());
      commits.push_back(message.push().has_commit());
      if (!message.push().has_commit()) continue;
      stream->Write(Piece(5, "ab", false));
      stream->Write(Piece(5, "", false));
      stream->Write(Piece(5, "cd", true));
    }
    boundary = message.has_boundary() && message.boundary().step() == 5 &&
               message.boundary().schedule_seq() == 9;
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  v1::Commit commit;
  commit.set_samples(8);
  client->SendPush(5, frames);
  client->SendCommit(5, "tail", commit);
  RV_ASSERT_OK_AND_ASSIGN(const ReceivedUpdate update,
                          client->WaitForUpdate(5));
  EXPECT_EQ(update.bytes, "abcd");
  EXPECT_EQ(update.end.version(), 6u);
  client->SendBoundary(5, 9);
  client->Close();
  EXPECT_TRUE(boundary);
  EXPECT_THAT(sizes, ElementsAre(kChunkBytes, kChunkBytes, 17, 4));
  EXPECT_THAT(commits, ElementsAre(false, false, false, true));
  EXPECT_EQ(client->sent().payload(), kChunkBytes * 2 + 17 + 4);
  EXPECT_EQ(client->received().payload(), 4);
  EXPECT_GT(client->sent().wire(), client->sent().payload());
}

TEST(ExchangeClientTest, SendsACommitWithoutData) {
  std::atomic<bool> seen{false};
  ScriptedServer<ScriptedShard> server([&](ShardSide* stream) {
    Greet(stream);
    v1::WorkerMessage message;
    stream->Read(&message);
    seen = message.push().has_commit() && message.push().data().empty();
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  client->SendCommit(5, "", v1::Commit());
  client->Close();
  EXPECT_TRUE(seen);
}

TEST(ExchangeClientTest, ExchangesStatistics) {
  ScriptedServer<ScriptedShard> server([](ShardSide* stream) {
    Greet(stream);
    v1::WorkerMessage message;
    stream->Read(&message);
    v1::ShardMessage answer;
    *answer.mutable_statistics() = message.statistics();
    stream->Write(answer);
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  client->SendStatistics(7, {1.0f, 2.0f, -3.0f});
  RV_ASSERT_OK_AND_ASSIGN(const std::vector<float> mean,
                          client->WaitForStatistics(7));
  EXPECT_THAT(mean, ElementsAre(1.0f, 2.0f, -3.0f));
}

TEST(ExchangeClientTest, RefusesAnUpdateBeyondItsBound) {
  ScriptedServer<ScriptedShard> server([](ShardSide* stream) {
    Greet(stream);
    const std::string chunk(kChunkBytes, 'x');
    for (int i = 0; i < 10 && stream->Write(Piece(5, chunk, false)); ++i) {
    }
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  EXPECT_THAT(client->WaitForUpdate(5),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("shard 1"), HasSubstr("the limit is"))));
}

TEST(ExchangeClientTest, RefusesMalformedSequences) {
  struct Case {
    std::vector<v1::ShardMessage> messages;
    std::string complaint;
  };
  v1::ShardMessage statistics;
  statistics.mutable_statistics()->set_data(std::string(16, 'x'));
  for (const Case& c :
       {Case{{Welcome()}, "a second welcome"},
        Case{{Piece(5, "a", false), Piece(6, "b", true)}, "a piece of step 6"},
        Case{{Piece(5, "", true), Piece(6, "", true), Piece(7, "", true)},
             "ahead of this worker's push"},
        Case{{statistics}, "16 bytes of statistics"}}) {
    SCOPED_TRACE(c.complaint);
    Notification refused;
    ScriptedServer<ScriptedShard> server([&](ShardSide* stream) {
      Greet(stream);
      for (const v1::ShardMessage& message : c.messages) {
        stream->Write(message);
      }
      Drain(stream);
      refused.Notify();
      return grpc::Status::OK;
    });
    RV_ASSERT_OK_AND_ASSIGN(
        auto client, ExchangeClient::Connect(OptionsFor(server.address())));
    // What is taken before all has come would no longer be too far ahead.
    ASSERT_TRUE(refused.WaitForNotificationWithTimeout(absl::Seconds(20)));
    absl::Status status;
    for (int64_t step = 5; status.ok(); ++step) {
      status = client->WaitForUpdate(step).status();
    }
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInternal, HasSubstr(c.complaint)));
  }
}

TEST(ExchangeClientTest, WaitsEndWithTheStreamsStatus) {
  ScriptedServer<ScriptedShard> server([](ShardSide* stream) {
    Greet(stream);
    v1::WorkerMessage message;
    stream->Read(&message);
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "bad checksum");
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  client->SendCommit(5, "zz", v1::Commit());
  EXPECT_THAT(client->WaitForUpdate(5),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("shard 1 at"), HasSubstr("step 5"),
                             HasSubstr("bad checksum"))));
}

TEST(ExchangeClientTest, WaitsEndWhenTheShardGoesAway) {
  ScriptedServer<ScriptedShard> server([](ShardSide* stream) {
    Greet(stream);
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  std::thread stopper([&] { server.Stop(); });
  // Which code it is depends on whether the stream or the connection ends
  // first.
  const absl::Status status = client->WaitForUpdate(5).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1"));
  stopper.join();
}

TEST(ExchangeClientTest, AShardThatDoesNotReadIsGivenUpAtTheLimit) {
  Notification over;
  ScriptedServer<ScriptedShard> server(
      [&](ShardSide* stream) {
        Greet(stream);
        over.WaitForNotificationWithTimeout(absl::Seconds(20));
        return grpc::Status::OK;
      },
      NarrowWindows);
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  for (int i = 0; i < 12; ++i) {
    client->SendPush(5, std::string(kChunkBytes, 'p'));
  }
  // Two pushes at their largest, and statistics of 3 elements twice.
  constexpr int64_t kLimit = 2 * (4 * kElements + kElements / 4 + 65536) + 24;
  EXPECT_THAT(
      client->WaitForUpdate(5),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr(absl::StrCat("shard 1 at ", server.address())),
                     HasSubstr(absl::StrCat("bytes wait to be sent, the limit "
                                            "is ",
                                            kLimit, "; it does not read")))));
  over.Notify();
}

TEST(ExchangeClientTest, CancelWakesAWait) {
  ScriptedServer<ScriptedShard> server([](ShardSide* stream) {
    Greet(stream);
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(
      auto client, ExchangeClient::Connect(OptionsFor(server.address())));
  std::thread canceller(
      [&] { client->Cancel(absl::AbortedError("the run has ended")); });
  EXPECT_THAT(
      client->WaitForUpdate(5),
      StatusIs(absl::StatusCode::kAborted, HasSubstr("the run has ended")));
  canceller.join();
}

}  // namespace
}  // namespace rivulet
