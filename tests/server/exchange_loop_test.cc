// The exchange over real gRPC streams on loopback: raw clients drive a shard's
// loop, well-behaved and hostile.

#include "server/exchange_loop.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/server/exchange_test_util.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/log_capture.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Client;
using ::rivulet::testing::CommitOf;
using ::rivulet::testing::CoreOf;
using ::rivulet::testing::FakeControl;
using ::rivulet::testing::Hello;
using ::rivulet::testing::LogCapture;
using ::rivulet::testing::MakePush;
using ::rivulet::testing::Mark;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::StopEntry;
using ::rivulet::testing::TestPush;
using ::rivulet::testing::TestShard;
using ::testing::HasSubstr;

v1::WorkerMessage BoundaryMessage(uint64_t step, uint64_t seq) {
  v1::WorkerMessage message;
  message.mutable_boundary()->set_step(step);
  message.mutable_boundary()->set_schedule_seq(seq);
  return message;
}

// Both clients push `step`; returns what the first gets.
absl::StatusOr<ShardUpdate> Step(ShardCore& oracle, Client& a, Client& b,
                                 int64_t step, uint64_t seq) {
  TestPush first = MakePush(oracle, 0, step, 3, 0.2);
  TestPush second = MakePush(oracle, 1, step, 4, 0.2);
  first.commit.set_schedule_seq(seq);
  second.commit.set_schedule_seq(seq);
  b.SendPush(step, second.bytes, second.commit);
  a.SendPush(step, first.bytes, first.commit);
  auto update = a.ReadUpdate();
  auto other = b.ReadUpdate();
  if (update.ok() && other.ok()) {
    EXPECT_EQ(update->bytes, other->bytes);
  }
  return update;
}

TEST(ExchangeLoopTest, TwoWorkersDriveStepsAndGetWhatTheCoreMakes) {
  const Config config = SmallConfig("fixed", 2);
  TestShard shard(config);
  auto oracle = CoreOf(PlanOf(config));
  Client a(shard, Hello(0));
  Client b(shard, Hello(1));
  RV_ASSERT_OK_AND_ASSIGN(auto welcome, a.ReadWelcome());
  EXPECT_EQ(welcome.shard(), 0u);
  EXPECT_EQ(welcome.version(), 0u);
  EXPECT_EQ(welcome.protocol(), kProtocolVersion);
  RV_ASSERT_OK(b.ReadWelcome().status());
  for (int64_t step = 0; step < 5; ++step) {
    RV_ASSERT_OK_AND_ASSIGN(auto update, Step(*oracle, a, b, step, 1));
    for (int rank = 0; rank < 2; ++rank) {
      const TestPush push =
          MakePush(*oracle, rank, step, static_cast<uint32_t>(rank + 3), 0.2);
      RV_ASSERT_OK(
          oracle->SubmitPush(rank, 0, step, push.bytes, push.commit).status());
    }
    RV_ASSERT_OK_AND_ASSIGN(auto expected, oracle->MakeUpdate(1));
    EXPECT_EQ(update.bytes, expected->bytes);
    EXPECT_EQ(update.end.SerializeAsString(),
              expected->end.SerializeAsString());
  }
  shard.Stop();
  RV_EXPECT_OK(shard.failure());
}

TEST(ExchangeLoopTest, RefusesStrangersAndNamesBothSides) {
  TestShard shard(SmallConfig("fixed", 2));
  struct Case {
    const char* what;
    absl::StatusCode code;
    const char* part;
    std::function<void(v1::ExchangeHello*)> change;
  };
  const Case cases[] = {
      {"protocol", absl::StatusCode::kFailedPrecondition, "the worker 7 to 9",
       [](auto* h) { h->set_protocol_min(7), h->set_protocol_max(9); }},
      {"job", absl::StatusCode::kFailedPrecondition, "the worker other",
       [](auto* h) { h->set_job("other"); }},
      {"config", absl::StatusCode::kFailedPrecondition, "another config",
       [](auto* h) { h->set_config_hash("x"); }},
      {"model", absl::StatusCode::kFailedPrecondition, "another model",
       [](auto* h) { h->set_manifest_hash("x"); }},
      {"step", absl::StatusCode::kFailedPrecondition, "step 3",
       [](auto* h) { h->set_next_step(3); }},
      {"rank", absl::StatusCode::kOutOfRange, "worker 2",
       [](auto* h) { h->set_rank(2); }},
      {"huge rank", absl::StatusCode::kOutOfRange, "below 1024",
       [](auto* h) { h->set_rank(4000000000u); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    v1::ExchangeHello hello = Hello(0);
    c.change(&hello);
    Client client(shard, hello);
    EXPECT_THAT(client.ReadWelcome().status(),
                StatusIs(c.code, HasSubstr(c.part)));
  }
  Client silent(shard);
  silent.Send(BoundaryMessage(0, 1));
  EXPECT_THAT(silent.ReadEnd(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hello")));
  // None of them was a worker of the run, so the run goes on.
  Client good(shard, Hello(0));
  RV_EXPECT_OK(good.ReadWelcome().status());
}

TEST(ExchangeLoopTest, AStrangerThatSaysNothingIsEnded) {
  StreamLimits limits;
  limits.patience = absl::Seconds(2);
  TestShard shard(SmallConfig("fixed", 2), /*shard=*/0, limits);
  Client worker(shard, Hello(0));
  RV_ASSERT_OK(worker.ReadWelcome().status());
  Client silent(shard);
  EXPECT_THAT(silent.ReadEnd(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no valid hello within 2s")));
  // One of the run's own may be silent for as long as it likes.
  worker.CloseWrites();
  RV_EXPECT_OK(worker.ReadEnd());
}

TEST(ExchangeLoopTest, ALargerIncarnationTakesTheRankOver) {
  TestShard shard(SmallConfig("fixed", 2));
  Client old(shard, Hello(0, 0, 1));
  RV_ASSERT_OK(old.ReadWelcome().status());
  Client fresh(shard, Hello(0, 0, 2));
  RV_ASSERT_OK(fresh.ReadWelcome().status());
  EXPECT_THAT(old.ReadEnd(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("incarnation 2")));
  Client late(shard, Hello(0, 0, 1));
  EXPECT_THAT(late.ReadWelcome().status(),
              StatusIs(absl::StatusCode::kAborted));
  shard.Stop();
  RV_EXPECT_OK(shard.failure());
}

// A worker that sends nonsense loses its stream with the reason. Nothing else
// changes: it may come again, and the step goes on as if it had said nothing.
class HostileWorkerTest : public ::testing::Test {
 protected:
  explicit HostileWorkerTest(int shards = 1, int shard = 0)
      : config_(SmallConfig("fixed", 2, shards)),
        shard_(config_, shard),
        oracle_(CoreOf(PlanOf(config_), shard)),
        other_(shard_, Hello(0)),
        client_(shard_, Hello(1)) {
    RV_EXPECT_OK(other_.ReadWelcome().status());
    RV_EXPECT_OK(client_.ReadWelcome().status());
  }
  void ExpectEnd(absl::StatusCode code, const std::string& part) {
    EXPECT_THAT(client_.ReadEnd(), StatusIs(code, HasSubstr(part)));
    ExpectThatAnotherGoesOn();
  }
  // Step `step` is made with a second stream of rank 1.
  void ExpectThatAnotherGoesOn(int64_t step = 0, uint64_t seq = 1) {
    Client again(shard_, Hello(1, static_cast<uint64_t>(step)));
    RV_ASSERT_OK(again.ReadWelcome().status());
    RV_ASSERT_OK_AND_ASSIGN(auto update,
                            Step(*oracle_, other_, again, step, seq));
    EXPECT_EQ(update.step, step);
    shard_.Stop();
    RV_EXPECT_OK(shard_.failure());
  }

  const Config config_;
  TestShard shard_;
  const std::unique_ptr<ShardCore> oracle_;
  Client other_;
  Client client_;
};

// Workers tell shard 1 of the schedule.
class HostileWorkerOfShardOneTest : public HostileWorkerTest {
 protected:
  HostileWorkerOfShardOneTest() : HostileWorkerTest(/*shards=*/2, /*shard=*/1) {
    shard_.control().AddEntry(Mark());  // entry 2
  }
  // Rank 0's push of `step` is taken once another of its name is refused.
  void PushAndWait(int64_t step, uint64_t seq) {
    TestPush push = MakePush(*oracle_, 0, step, 3, 0.2);
    push.commit.set_schedule_seq(seq);
    other_.SendPush(step, push.bytes, push.commit);
    push.commit.set_samples(4);
    other_.SendPush(step, push.bytes, push.commit);
    EXPECT_THAT(other_.ReadEnd(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("came again")));
  }
};

TEST_F(HostileWorkerOfShardOneTest, WithABoundaryInsideAStep) {
  PushAndWait(/*step=*/0, /*seq=*/1);
  TestPush push = MakePush(*oracle_, 1, 0, 3, 0.2);
  push.commit.set_schedule_seq(2);
  client_.SendPush(0, push.bytes, push.commit);
  EXPECT_THAT(client_.ReadEnd(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("schedule entry 2 inside step 0")));
  shard_.Stop();
  RV_EXPECT_OK(shard_.failure());
  EXPECT_THAT(shard_.saved(), ::testing::IsEmpty());
}

TEST_F(HostileWorkerOfShardOneTest, WithAPushUnderAScheduleThatIsOver) {
  RV_ASSERT_OK_AND_ASSIGN(auto first, Step(*oracle_, other_, client_, 0, 1));
  EXPECT_EQ(first.step, 0);
  other_.Send(BoundaryMessage(0, 2));
  PushAndWait(/*step=*/1, /*seq=*/2);
  TestPush late = MakePush(*oracle_, 1, 1, 4, 0.2);
  late.commit.set_schedule_seq(1);
  client_.SendPush(1, late.bytes, late.commit);
  EXPECT_THAT(client_.ReadEnd(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("under schedule 1, step 1 is under 2")));
  shard_.Stop();
  RV_EXPECT_OK(shard_.failure());
}

TEST_F(HostileWorkerTest, WithADamagedFrame) {
  TestPush push = MakePush(shard_.core(), 1, 0, 3, 0.2);
  push.bytes[push.bytes.size() / 2] ^= 1;
  client_.SendPush(0, push.bytes, CommitOf(push.bytes, 3, 1));
  ExpectEnd(absl::StatusCode::kDataLoss, "push of worker 1 for step 0");
}

TEST_F(HostileWorkerTest, WithAPushAboveTheLimit) {
  const std::string piece(kChunkBytes, 'x');
  v1::WorkerMessage message;
  message.mutable_push()->set_data(piece);
  client_.Send(message);
  ExpectEnd(absl::StatusCode::kInvalidArgument,
            absl::StrCat(shard_.core().max_push_bytes()));
}

TEST_F(HostileWorkerTest, WithASecondHello) {
  client_.SayHello(Hello(1));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "second hello");
}

TEST_F(HostileWorkerTest, WithAStepBeyondTheNext) {
  const TestPush push = MakePush(shard_.core(), 1, 4, 3);
  client_.SendPush(4, push.bytes, push.commit);
  ExpectEnd(absl::StatusCode::kFailedPrecondition, "collects step 0");
}

TEST_F(HostileWorkerTest, WithAScheduleThatDoesNotExist) {
  TestPush push = MakePush(shard_.core(), 1, 0, 3);
  push.commit.set_schedule_seq(uint64_t{1} << 60);
  client_.SendPush(0, push.bytes, push.commit);
  ExpectEnd(absl::StatusCode::kFailedPrecondition, "shard 0 has stamped 1");
}

TEST_F(HostileWorkerTest, WithABoundaryOfAnotherStep) {
  client_.Send(BoundaryMessage(6, 2));
  ExpectEnd(absl::StatusCode::kFailedPrecondition, "boundary after step 6");
}

TEST_F(HostileWorkerTest, WithStatisticsWhereTheModelHasNone) {
  v1::WorkerMessage message;
  message.mutable_statistics()->set_last(true);
  client_.Send(message);
  ExpectEnd(absl::StatusCode::kInvalidArgument, "no running statistics");
}

TEST_F(HostileWorkerTest, WithAnEmptyMessage) {
  client_.Send(v1::WorkerMessage());
  ExpectEnd(absl::StatusCode::kInvalidArgument, "unknown message");
}

TEST_F(HostileWorkerTest, ThatSimplyLeaves) {
  client_.CloseWrites();
  RV_EXPECT_OK(client_.ReadEnd());
  ExpectThatAnotherGoesOn();
}

TEST_F(HostileWorkerTest, ThatLeavesAfterItsPush) {
  TestPush push = MakePush(*oracle_, 1, 0, 4, 0.2);
  push.commit.set_schedule_seq(1);
  client_.SendPush(0, push.bytes, push.commit);
  client_.CloseWrites();
  RV_EXPECT_OK(client_.ReadEnd());
  // The push counts; its repetition changes nothing.
  ExpectThatAnotherGoesOn();
}

TEST(ExchangeLoopTest, SaysEveryTenSecondsWhomAStepWaitsFor) {
  const auto core = CoreOf(PlanOf(SmallConfig("fixed", 3)));
  ExchangeHub hub;  // without the streams that the events come from
  FakeControl control;
  ExchangeOptions options;
  options.job = ::rivulet::testing::kJob;
  options.config_hash = "config";
  options.manifest_hash = "manifest";
  ExchangeLoop loop(core.get(), &hub, &control, std::move(options));
  const auto push = [&](StreamId stream, int rank, int64_t step) {
    const TestPush made = MakePush(*core, rank, step, 3, 0.2);
    v1::WorkerMessage message;
    message.mutable_push()->set_step(static_cast<uint64_t>(step));
    message.mutable_push()->set_data(made.bytes);
    *message.mutable_push()->mutable_commit() = made.commit;
    RV_ASSERT_OK(loop.Handle({stream, message}));
  };
  for (StreamId stream : {1, 2, 3}) {
    v1::WorkerMessage message;
    *message.mutable_hello() = Hello(static_cast<int>(stream) - 1);
    RV_ASSERT_OK(loop.Handle({stream, message}));
  }
  absl::Time now = absl::FromUnixSeconds(100);
  const auto pass = [&](absl::Duration time) {
    for (const absl::Time end = now + time; now < end;) {
      now += absl::Milliseconds(50);
      loop.Tick(now);
    }
  };
  const LogCapture log;
  pass(absl::Minutes(1));
  EXPECT_EQ(log.Count("has waited"), 0) << "nobody has begun the step";
  push(2, 1, 0);
  pass(absl::Seconds(9));
  EXPECT_EQ(log.Count("has waited"), 0);
  pass(absl::Seconds(2));
  EXPECT_EQ(log.Count("step 0 has waited 10s for the push of worker 0, 2"), 1);
  push(1, 0, 0);
  pass(absl::Seconds(10));
  EXPECT_EQ(log.Count("step 0 has waited 20s for the push of worker 2"), 1);
  push(3, 2, 0);
  push(1, 0, 1);
  pass(absl::Seconds(9));
  EXPECT_EQ(log.Count("has waited"), 2) << "a new step waits anew";
  pass(absl::Seconds(2));
  EXPECT_EQ(log.Count("step 1 has waited 10s"), 1);
}

TEST(ExchangeLoopTest, AnswersARepeatedPushOnlyToItsSender) {
  TestShard shard(SmallConfig("fixed", 2));
  auto oracle = CoreOf(PlanOf(SmallConfig("fixed", 2)));
  Client a(shard, Hello(0));
  Client b(shard, Hello(1));
  RV_ASSERT_OK(a.ReadWelcome().status());
  RV_ASSERT_OK(b.ReadWelcome().status());
  RV_ASSERT_OK_AND_ASSIGN(auto update, Step(*oracle, a, b, 0, 1));
  const TestPush again = MakePush(*oracle, 0, 0, 3, 0.2);
  a.SendPush(0, again.bytes, again.commit);
  RV_ASSERT_OK_AND_ASSIGN(auto repeated, a.ReadUpdate());
  EXPECT_EQ(repeated.step, 0);
  EXPECT_EQ(repeated.bytes, update.bytes);
  RV_ASSERT_OK_AND_ASSIGN(auto next, Step(*oracle, a, b, 1, 1));
  EXPECT_EQ(next.step, 1) << "and the next step is as usual, for both";
}

TEST(ExchangeLoopTest, AWorkerThatAsksAgainAndDoesNotReadIsEnded) {
  Config config = SmallConfig("none", 2);
  config.model.hidden = {4096};  // updates of more than 1 MiB
  TestShard shard(config);
  Client a(shard, Hello(0));
  Client b(shard, Hello(1));
  RV_ASSERT_OK(a.ReadWelcome().status());
  RV_ASSERT_OK(b.ReadWelcome().status());
  FrameEncoder encoder;
  CompressedTensor tensor;
  tensor.size = shard.core().segments()[0].size();
  tensor.positions = {3};
  tensor.values = {1.0f};
  encoder.Add(0, tensor, 0, tensor.size);
  const std::string bytes = encoder.Finish();
  a.SendPush(0, bytes, CommitOf(bytes, 8, 1));
  b.SendPush(0, bytes, CommitOf(bytes, 8, 1));
  RV_ASSERT_OK_AND_ASSIGN(auto update, b.ReadUpdate());
  ASSERT_GT(static_cast<int64_t>(update.bytes.size()), kChunkBytes);
  for (int i = 0; i < 40; ++i) a.SendPush(0, bytes, CommitOf(bytes, 8, 1));
  shard.WaitForLeft();
  EXPECT_THAT(a.ReadEnd(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(absl::StrCat(
                           "wait to be read, the limit is 65536 and ",
                           3 * shard.core().max_push_bytes(), " bytes"))));
  // Nothing else changes: it may come again, and the run goes on.
  Client again(shard, Hello(0, 1));
  RV_ASSERT_OK(again.ReadWelcome().status());
  again.SendPush(1, bytes, CommitOf(bytes, 8, 1));
  b.SendPush(1, bytes, CommitOf(bytes, 8, 1));
  RV_ASSERT_OK_AND_ASSIGN(update, again.ReadUpdate());
  EXPECT_EQ(update.step, 1);
  shard.Stop();
  RV_EXPECT_OK(shard.failure());
}

TEST(ExchangeLoopTest, ShardZeroStampsTheNewestEntryAndActsOnIt) {
  TestShard shard(SmallConfig("fixed", 2));
  auto oracle = CoreOf(PlanOf(SmallConfig("fixed", 2)));
  Client a(shard, Hello(0));
  Client b(shard, Hello(1));
  RV_ASSERT_OK(a.ReadWelcome().status());
  RV_ASSERT_OK(b.ReadWelcome().status());
  RV_ASSERT_OK_AND_ASSIGN(auto first, Step(*oracle, a, b, 0, 1));
  EXPECT_EQ(first.end.schedule_seq(), 1u);
  shard.control().AddEntry(Mark());
  RV_ASSERT_OK_AND_ASSIGN(auto second, Step(*oracle, a, b, 1, 1));
  EXPECT_EQ(second.end.schedule_seq(), 2u);
  a.Send(BoundaryMessage(1, 2));  // what it knows already
  shard.control().AddEntry(StopEntry());
  RV_ASSERT_OK_AND_ASSIGN(auto third, Step(*oracle, a, b, 2, 2));
  EXPECT_EQ(third.end.schedule_seq(), 3u);
  a.CloseWrites();
  RV_EXPECT_OK(a.ReadEnd()) << "leaving after a stop is right";
  shard.Stop();
  RV_EXPECT_OK(shard.failure());
  EXPECT_THAT(shard.saved(), ::testing::ElementsAre(2, 3));
  EXPECT_TRUE(shard.finished());
  const auto sent = shard.control().sent();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].checkpoint_done().step(), 2u);
  EXPECT_EQ(sent[1].checkpoint_done().step(), 3u);
  EXPECT_EQ(sent[2].finished().step(), 3u);
  EXPECT_FALSE(sent[2].finished().complete());
}

TEST(ExchangeLoopTest, OtherShardsLearnOfABoundaryFromWorkers) {
  for (const bool by_boundary : {true, false}) {
    SCOPED_TRACE(by_boundary ? "by Boundary" : "by Push");
    TestShard shard(SmallConfig("fixed", 2, 2), /*shard=*/1);
    auto oracle = CoreOf(PlanOf(SmallConfig("fixed", 2, 2)), 1);
    Client a(shard, Hello(0));
    Client b(shard, Hello(1));
    RV_ASSERT_OK(a.ReadWelcome().status());
    RV_ASSERT_OK(b.ReadWelcome().status());
    shard.control().AddEntry(Mark());
    RV_ASSERT_OK_AND_ASSIGN(auto first, Step(*oracle, a, b, 0, 1));
    EXPECT_EQ(first.end.schedule_seq(), 1u) << "only shard 0 stamps";
    if (by_boundary) a.Send(BoundaryMessage(0, 2));
    RV_ASSERT_OK_AND_ASSIGN(auto second, Step(*oracle, a, b, 1, 2));
    shard.Stop();
    RV_EXPECT_OK(shard.failure());
    EXPECT_THAT(shard.saved(), ::testing::ElementsAre(1));
  }
}

TEST(ExchangeLoopTest, AveragesStatisticsAndEndsWithWeightsAndBuffers) {
  Config config = SmallConfig("fixed", 2);
  config.model.name = "resnet20";
  config.data.synthetic.channels = 3;
  config.data.synthetic.height = 32;
  config.data.synthetic.width = 32;
  config.train.max_steps = 40;
  const auto plan = PlanOf(config);
  TestShard shard(config);
  auto oracle = CoreOf(plan);
  Client a(shard, Hello(0));
  Client b(shard, Hello(1));
  RV_ASSERT_OK(a.ReadWelcome().status());
  RV_ASSERT_OK(b.ReadWelcome().status());
  const auto statistics = [&](int64_t step, float value) {
    v1::WorkerMessage message;
    v1::Statistics* s = message.mutable_statistics();
    s->set_step(static_cast<uint64_t>(step));
    const std::vector<float> values(
        static_cast<size_t>(plan->manifest().num_buffer_elements()), value);
    s->set_data(reinterpret_cast<const char*>(values.data()),
                values.size() * sizeof(float));
    s->set_last(true);
    return message;
  };
  // Small pushes: only the first segment's first value.
  const auto push = [&](int64_t step) {
    FrameEncoder encoder;
    CompressedTensor tensor;
    tensor.size = oracle->segments()[0].size();
    tensor.positions = {static_cast<uint32_t>(step)};
    tensor.values = {1.0f};
    encoder.Add(0, tensor, 0, tensor.size);
    return encoder.Finish();
  };
  for (int64_t step = 0; step < 40; ++step) {
    const std::string bytes = push(step);
    a.SendPush(step, bytes, CommitOf(bytes, 8, 1));
    b.SendPush(step, bytes, CommitOf(bytes, 8, 1));
    RV_ASSERT_OK(a.ReadUpdate().status());
    RV_ASSERT_OK(b.ReadUpdate().status());
    if (step == 3) {
      a.Send(statistics(step, 1.0f));
      b.Send(statistics(step, 2.0f));
      RV_ASSERT_OK_AND_ASSIGN(auto mean, a.ReadStatistics());
      EXPECT_THAT(mean, ::testing::Each(1.5f));
      RV_ASSERT_OK(b.ReadStatistics().status());
      EXPECT_TRUE(shard.control().sent().empty());
    }
  }
  a.Send(statistics(39, 4.0f));
  b.Send(statistics(39, 6.0f));
  RV_ASSERT_OK(a.ReadStatistics().status());
  RV_ASSERT_OK(b.ReadStatistics().status());
  a.CloseWrites();
  b.CloseWrites();
  RV_EXPECT_OK(a.ReadEnd());
  RV_EXPECT_OK(b.ReadEnd());
  shard.Stop();
  RV_EXPECT_OK(shard.failure());

  int64_t weights = 0;
  int64_t buffers = 0;
  const auto sent = shard.control().sent();
  for (const v1::DaemonMessage& message : sent) {
    if (!message.has_weights()) continue;
    (message.weights().buffers() ? buffers : weights) +=
        static_cast<int64_t>(message.weights().data().size() / 4);
  }
  EXPECT_EQ(weights, plan->manifest().num_parameters());
  EXPECT_EQ(buffers, plan->manifest().num_buffer_elements());
  ASSERT_FALSE(sent.empty());
  EXPECT_TRUE(sent.back().finished().complete());
  EXPECT_EQ(sent.back().finished().step(), 40u);
}

TEST(ExchangeLoopTest, StopsWhilePushesAreUnderWay) {
  for (int round = 0; round < 5; ++round) {
    TestShard shard(SmallConfig("fixed", 2));
    Client a(shard, Hello(0));
    Client b(shard, Hello(1));
    RV_ASSERT_OK(a.ReadWelcome().status());
    RV_ASSERT_OK(b.ReadWelcome().status());
    std::thread sender([&] {
      auto oracle = CoreOf(PlanOf(SmallConfig("fixed", 2)));
      for (int64_t step = 0; step < 1000; ++step) {
        if (!Step(*oracle, a, b, step, 1).ok()) return;
      }
    });
    absl::SleepFor(absl::Milliseconds(5 * round));
    shard.Stop();
    shard.Stop();
    sender.join();
    RV_EXPECT_OK(shard.failure());
  }
}

}  // namespace
}  // namespace rivulet
