#include "common/daemon/session_client.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "common/base/sync.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/scripted_service.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tcp_relay.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::ScriptedController;
using ::rivulet::testing::ScriptedServer;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TcpRelay;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ControllerSide =
    grpc::ServerReaderWriter<v1::ControllerMessage, v1::DaemonMessage>;

SessionClient::Options OptionsFor(const std::string& address) {
  SessionClient::Options options;
  options.controller = address;
  options.hello.set_role(v1::ROLE_WORKER);
  options.hello.set_index(2);
  options.join_timeout = absl::Seconds(10);
  return options;
}

v1::ControllerMessage Entry(uint64_t seq) {
  v1::ControllerMessage message;
  message.mutable_entry()->set_seq(seq);
  message.mutable_entry()->mutable_checkpoint();
  return message;
}

void Greet(ControllerSide* stream) {
  v1::DaemonMessage message;
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_TRUE(message.has_hello());
  ASSERT_EQ(message.hello().index(), 2u);
  v1::ControllerMessage answer;
  answer.mutable_welcome()->set_protocol(1);
  answer.mutable_welcome()->set_job("abc");
  answer.mutable_welcome()->set_incarnation(4);
  stream->Write(answer);
}

void SendStart(ControllerSide* stream, uint64_t first_seq = 1) {
  v1::ControllerMessage message;
  message.mutable_start()->set_step(12);
  message.mutable_start()->add_shard_addresses("127.0.0.1:9");
  message.mutable_start()->add_entries()->set_seq(first_seq);
  stream->Write(message);
}

void SendFinish(ControllerSide* stream, int code, const std::string& text) {
  v1::ControllerMessage message;
  message.mutable_finish()->set_code(code);
  message.mutable_finish()->set_message(text);
  stream->Write(message);
}

void Drain(ControllerSide* stream) {
  v1::DaemonMessage message;
  while (stream->Read(&message)) {
  }
}

TEST(SessionClientTest, NamesAnAddressWhereNobodyAnswers) {
  SessionClient::Options options = OptionsFor("127.0.0.1:1");
  options.join_timeout = absl::Milliseconds(300);
  EXPECT_THAT(SessionClient::Join(options),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("the controller at 127.0.0.1:1"),
                             HasSubstr("300ms"), HasSubstr("last error"))));
}

TEST(SessionClientTest, StopsDiallingWhenTold) {
  SessionClient::Options options = OptionsFor("127.0.0.1:1");
  std::atomic<int> polls{0};
  options.cancelled = [&] { return ++polls > 3; };
  EXPECT_THAT(SessionClient::Join(options),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("127.0.0.1:1")));
}

TEST(SessionClientTest, TakesARefusalAsFinal) {
  std::atomic<int> calls{0};
  ScriptedServer<ScriptedController> server([&](ControllerSide* stream) {
    ++calls;
    v1::DaemonMessage hello;
    stream->Read(&hello);
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "another config");
  });
  EXPECT_THAT(SessionClient::Join(OptionsFor(server.address())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(server.address()),
                             HasSubstr("another config"))));
  EXPECT_EQ(calls, 1);
}

TEST(SessionClientTest, GivesUpAControllerThatDoesNotAnswer) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto relay, TcpRelay::Start(server.address()));
  SessionClient::Options options = OptionsFor(relay->address());
  options.patience = absl::Milliseconds(1500);
  RV_ASSERT_OK_AND_ASSIGN(auto session, SessionClient::Join(options));
  relay->Mute();
  Notification ended;
  session->OnEnd([&](const absl::Status&) { ended.Notify(); });
  // Well before what it takes without being asked for patience.
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(kDefaultPatience / 2));
  EXPECT_THAT(session->WaitForFinish(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lost")));
}

TEST(SessionClientTest, BeginsInTheMiddleOfTheSchedule) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    SendStart(stream, 7);
    stream->Write(Entry(8));
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  RV_ASSERT_OK(session->WaitForEntry(8, absl::Seconds(10)));
  RV_ASSERT_OK_AND_ASSIGN(const v1::ScheduleEntry first,
                          session->WaitForEntry(7, absl::ZeroDuration()));
  EXPECT_EQ(first.seq(), 7u);
  EXPECT_EQ(session->newest_seq(), 8u);
  EXPECT_THAT(session->WaitForEntry(6, absl::Seconds(10)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("entry 6")));
}

TEST(SessionClientTest, TriesAgainWhileTheControllerIsUnavailable) {
  std::atomic<int> calls{0};
  ScriptedServer<ScriptedController> server([&](ControllerSide* stream) {
    if (++calls < 3) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting");
    }
    Greet(stream);
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(session->welcome().job(), "abc");
  EXPECT_EQ(session->welcome().incarnation(), 4u);
}

TEST(SessionClientTest, FollowsARunFromStartToFinish) {
  std::string reason;
  ScriptedServer<ScriptedController> server([&](ControllerSide* stream) {
    Greet(stream);
    SendStart(stream);
    stream->Write(Entry(1));  // repeated
    stream->Write(Entry(2));
    v1::DaemonMessage message;
    stream->Read(&message);
    reason = message.stop().reason();
    SendFinish(stream, 0, "");
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  RV_ASSERT_OK_AND_ASSIGN(const v1::Start start, session->WaitForStart());
  EXPECT_EQ(start.step(), 12u);
  EXPECT_EQ(start.shard_addresses(0), "127.0.0.1:9");
  RV_ASSERT_OK_AND_ASSIGN(const v1::ScheduleEntry entry,
                          session->WaitForEntry(2, absl::Seconds(10)));
  EXPECT_TRUE(entry.has_checkpoint());
  EXPECT_EQ(session->newest_seq(), 2u);
  EXPECT_THAT(session->WaitForEntry(3, absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("schedule entry 3")));
  EXPECT_FALSE(session->Ended(nullptr));
  v1::DaemonMessage stop;
  stop.mutable_stop()->set_reason("enough");
  session->Send(std::move(stop));
  RV_EXPECT_OK(session->WaitForFinish());
  absl::Status result = absl::UnknownError("untouched");
  EXPECT_TRUE(session->Ended(&result));
  RV_EXPECT_OK(result);
  session->Close();
  session->Close();
  EXPECT_EQ(reason, "enough");
  EXPECT_GT(session->sent().wire(), 0);
  EXPECT_GT(session->received().wire(), 0);
}

TEST(SessionClientTest, TellsTheControllersReason) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    SendFinish(stream, static_cast<int>(absl::StatusCode::kUnavailable),
               "worker 1 did not come");
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  const auto is_reason =
      StatusIs(absl::StatusCode::kUnavailable, "worker 1 did not come");
  EXPECT_THAT(session->WaitForStart(), is_reason);
  EXPECT_THAT(session->WaitForEntry(1, absl::Seconds(10)), is_reason);
  EXPECT_THAT(session->WaitForFinish(), is_reason);
}

TEST(SessionClientTest, ALostControllerIsUnavailable) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    SendStart(stream);
    return grpc::Status::OK;  // ends without Finish
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  EXPECT_THAT(session->WaitForFinish(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("lost the controller")));
}

TEST(SessionClientTest, ARunThatEndsWellBeforeWhatIsAwaitedIsAborted) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    SendFinish(stream, 0, "");
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  EXPECT_THAT(
      session->WaitForStart(),
      StatusIs(absl::StatusCode::kAborted, "the run ended before it began"));
  EXPECT_THAT(session->WaitForEntry(4, absl::Seconds(10)),
              StatusIs(absl::StatusCode::kAborted,
                       "the run ended before schedule entry 4"));
}

TEST(SessionClientTest, RefusesWhatAControllerMayNotSend) {
  v1::ControllerMessage welcome;
  welcome.mutable_welcome()->set_protocol(1);
  v1::ControllerMessage start;
  start.mutable_start()->set_step(1);
  const std::pair<std::vector<v1::ControllerMessage>, const char*> cases[] = {
      {{welcome}, "sent a second Welcome"},
      {{start, start}, "sent a second Start"},
      {{start, Entry(0)}, "sent schedule entry 0 where 1 follows"}};
  for (const auto& [messages, why] : cases) {
    SCOPED_TRACE(why);
    ScriptedServer<ScriptedController> server([&](ControllerSide* stream) {
      Greet(stream);
      for (const v1::ControllerMessage& message : messages) {
        stream->Write(message);
      }
      Drain(stream);
      return grpc::Status::OK;
    });
    RV_ASSERT_OK_AND_ASSIGN(auto session,
                            SessionClient::Join(OptionsFor(server.address())));
    EXPECT_THAT(session->WaitForFinish(),
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr(server.address()), HasSubstr(why))));
  }
  ScriptedServer<ScriptedController> early([&](ControllerSide* stream) {
    stream->Write(start);
    Drain(stream);
    return grpc::Status::OK;
  });
  EXPECT_THAT(SessionClient::Join(OptionsFor(early.address())),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("sent a message before Welcome")));
}

TEST(SessionClientTest, ASupersededDaemonLearnsWhy) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    return grpc::Status(grpc::StatusCode::ABORTED, "incarnation 5 took over");
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  EXPECT_THAT(session->WaitForFinish(),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("incarnation 5 took over")));
}

TEST(SessionClientTest, EndsOnAGapInTheSchedule) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    SendStart(stream);
    stream->Write(Entry(3));
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  EXPECT_THAT(session->WaitForEntry(2, absl::Seconds(10)),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("schedule entry 3 where 2 follows")));
}

TEST(SessionClientTest, CallsBackOnceAtTheEnd) {
  ScriptedServer<ScriptedController> server([](ControllerSide* stream) {
    Greet(stream);
    v1::DaemonMessage message;
    stream->Read(&message);  // until the test has registered
    SendFinish(stream, 9, "over");
    Drain(stream);
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  std::atomic<int> calls{0};
  Notification ended;
  session->OnEnd([&](const absl::Status& status) {
    EXPECT_EQ(status, absl::FailedPreconditionError("over"));
    ++calls;
    ended.Notify();
  });
  session->Send(v1::DaemonMessage());
  ASSERT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(10)));
  session->Close();
  EXPECT_EQ(calls, 1);
  session->OnEnd([&](const absl::Status&) { ++calls; });  // at once
  EXPECT_EQ(calls, 2);
}

TEST(SessionClientTest, KeepsTheLeaseWhileNothingIsSaid) {
  std::atomic<uint64_t> step{0};
  ScriptedServer<ScriptedController> server([&](ControllerSide* stream) {
    Greet(stream);
    v1::DaemonMessage message;
    while (stream->Read(&message)) {
      if (!message.has_heartbeat()) continue;
      step = message.heartbeat().step();
      if (step == 7) SendFinish(stream, 0, "");
    }
    return grpc::Status::OK;
  });
  SessionClient::Options options = OptionsFor(server.address());
  options.heartbeat_every = absl::Milliseconds(10);
  RV_ASSERT_OK_AND_ASSIGN(auto session, SessionClient::Join(options));
  session->SetStep(7);
  RV_EXPECT_OK(session->WaitForFinish());
  EXPECT_EQ(step, 7u);
}

TEST(SessionClientTest, CloseDeliversWhatWasSent) {
  std::atomic<int> parts{0};
  ScriptedServer<ScriptedController> server([&](ControllerSide* stream) {
    Greet(stream);
    v1::DaemonMessage message;
    while (stream->Read(&message)) parts += message.has_weights() ? 1 : 0;
    return grpc::Status::OK;
  });
  RV_ASSERT_OK_AND_ASSIGN(auto session,
                          SessionClient::Join(OptionsFor(server.address())));
  for (int i = 0; i < 20; ++i) {
    v1::DaemonMessage message;
    message.mutable_weights()->set_data(std::string(kChunkBytes, 'w'));
    session->Send(std::move(message));
  }
  session->Close();
  EXPECT_EQ(parts, 20);
}

}  // namespace
}  // namespace rivulet
