// The controller's decisions against a clock that the test turns. Messages come
// from streams that the hub does not have, so nothing is answered.

#include "server/controller/run_coordinator.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/text_file.h"
#include "server/controller/complete_markers.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/log_capture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::LogCapture;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RunCoordinatorTest : public ::testing::Test {
 protected:
  RunCoordinatorTest() {
    config_ = SmallConfig("fixed", /*workers=*/2, /*shards=*/1);
    config_.cluster.join_timeout = absl::Minutes(2);
    config_.cluster.lease = absl::Seconds(30);
    config_.checkpoint.every = absl::Minutes(5);
    config_.checkpoint.every_steps = 0;
    config_.report.every = absl::Seconds(2);
    auto log = ScheduleLog::Open(folder_.File("schedule.log"));
    RV_CHECK(log.ok()) << log.status().ToString();
    log_ = *std::move(log);
    coordinator_ = std::make_unique<RunCoordinator>(
        RunCoordinator::Parts{.plan = PlanOf(config_),
                              .paths = RunPaths(folder_.path()),
                              .job = "job",
                              .generation = 1,
                              .earlier = {},
                              .notices = {},
                              .hub = &hub_,
                              .log = log_.get()},
        now_);
  }

  void Handle(StreamId stream, v1::DaemonMessage message) {
    coordinator_->Handle({stream, std::move(message)}, now_);
  }
  // Streams 1 and 2 are the workers, 3 is the shard.
  v1::DaemonMessage HelloOf(StreamId stream) const {
    v1::DaemonMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_min(kOldestProtocolVersion);
    hello.set_protocol_max(kProtocolVersion);
    hello.set_role(stream == 3 ? v1::ROLE_SHARD : v1::ROLE_WORKER);
    hello.set_index(stream == 3 ? 0 : static_cast<uint32_t>(stream - 1));
    hello.set_config_hash(ConfigHash(config_, /*for_resume=*/false));
    hello.set_manifest_hash(PlanOf(config_)->manifest_hash());
    hello.set_address("127.0.0.1:1");
    return message;
  }
  void Join(StreamId stream, std::vector<uint64_t> checkpoints = {}) {
    v1::DaemonMessage message = HelloOf(stream);
    message.mutable_hello()->set_resume(!checkpoints.empty());
    for (uint64_t step : checkpoints) {
      message.mutable_hello()->add_checkpoints(step);
    }
    Handle(stream, std::move(message));
  }
  void JoinAll() {
    for (StreamId stream : {1, 2, 3}) Join(stream);
  }
  void Beat(StreamId stream, uint64_t step = 0) {
    v1::DaemonMessage message;
    message.mutable_heartbeat()->set_step(step);
    Handle(stream, std::move(message));
  }
  void BeatAll(uint64_t step = 0) {
    for (StreamId stream : {1, 2, 3}) Beat(stream, step);
  }
  // The clock turns as the controller's loop does.
  void Pass(absl::Duration time) {
    const absl::Time end = now_ + time;
    while (now_ < end) {
      now_ += absl::Milliseconds(50);
      coordinator_->Tick(now_);
    }
  }
  v1::RunStatus Status() const { return coordinator_->Status(now_); }

  const TempFolder folder_;
  Config config_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  SessionHub hub_;
  std::unique_ptr<ScheduleLog> log_;
  std::unique_ptr<RunCoordinator> coordinator_;
};

TEST_F(RunCoordinatorTest, SaysEveryTenSecondsWhoIsMissing) {
  Join(1);
  Join(3);
  const LogCapture log;
  const std::string line =
      "1 of 2 workers, 1 of 1 shards: waiting for worker 1; start with: "
      "rivulet-worker --config FILE --rank 1";
  coordinator_->Tick(now_);
  Pass(absl::Seconds(9));
  EXPECT_EQ(log.Count(line), 0) << "children of one command need a moment";
  for (int tens = 1; tens <= 5; ++tens) {
    Pass(absl::Seconds(10));
    Beat(1);
    Beat(3);
    EXPECT_EQ(log.Count(line), tens);
  }
  Join(2);
  EXPECT_EQ(Status().phase(), v1::RunStatus::TRAINING);
  Pass(absl::Seconds(20));
  EXPECT_EQ(log.Count("waiting for"), 5);
}

TEST_F(RunCoordinatorTest, GivesUpWhenTheTimeToJoinIsOver) {
  Join(1);
  for (int i = 0; i < 5; ++i) {
    Pass(absl::Seconds(23));
    Beat(1);
  }
  Pass(absl::Seconds(4));
  EXPECT_FALSE(coordinator_->ended());
  Pass(absl::Seconds(1));
  ASSERT_TRUE(coordinator_->ended());
  EXPECT_THAT(coordinator_->result(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("within 2m"),
                             HasSubstr("waiting for worker 1, shard 0"))));
}

TEST_F(RunCoordinatorTest, DropsAMemberThatFallsSilentWhileOthersAreAwaited) {
  Join(1);
  Pass(absl::Seconds(20));
  Join(2);
  Pass(absl::Seconds(15));
  EXPECT_THAT(Status().message(), HasSubstr("waiting for worker 0, shard 0;"));
  Join(1);
  Join(3);
  EXPECT_EQ(Status().phase(), v1::RunStatus::TRAINING);
}

TEST_F(RunCoordinatorTest, AFirstSetThatNeverBecameCompleteIsBegunAgain) {
  std::filesystem::create_directories(folder_.File("checkpoints"));
  Join(1, {20});
  Join(2);
  Join(3, {20});
  EXPECT_EQ(Status().phase(), v1::RunStatus::TRAINING);
  EXPECT_EQ(Status().first_step(), 0u);
}

TEST_F(RunCoordinatorTest, ACheckpointThatSomebodyHasLostIsNotGivenUpQuietly) {
  RV_ASSERT_OK(MarkCheckpointComplete(RunPaths(folder_.path()), 20, "job", 2));
  Join(1, {20});
  Join(2);
  Join(3, {20});
  ASSERT_TRUE(coordinator_->ended());
  EXPECT_THAT(coordinator_->result(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("worker 1 has none; worker 0 has 20")));
}

TEST_F(RunCoordinatorTest, WatchersAreToldWhatMembersNoteAtTheirJoin) {
  EXPECT_EQ(Status().notices_size(), 0);
  v1::DaemonMessage hello = HelloOf(2);
  hello.mutable_hello()->add_notes("the checkpoint of step 4 is \x1b[31mred");
  Handle(2, hello);
  ASSERT_EQ(Status().notices_size(), 1);
  EXPECT_EQ(Status().notices(0),
            "worker 1: the checkpoint of step 4 is \\x1b[31mred");
  StreamId stream = 10;
  for (int i = 0; i < 100; ++i) Handle(++stream, hello);
  EXPECT_EQ(Status().notices_size(), 1) << "it joins again";
  for (int i = 0; i < 100; ++i) {
    hello.mutable_hello()->set_notes(0, absl::StrCat("note ", i));
    Handle(++stream, hello);
  }
  EXPECT_EQ(Status().notices_size(), 16) << "a member cannot fill the memory";
}

TEST_F(RunCoordinatorTest, EndsTheRunWhenALeaseLapses) {
  JoinAll();
  Pass(absl::Seconds(29));
  Beat(1, 4);
  Beat(3, 4);
  EXPECT_FALSE(coordinator_->ended());
  Pass(absl::Seconds(2));
  ASSERT_TRUE(coordinator_->ended());
  EXPECT_THAT(coordinator_->result(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("worker 1"), HasSubstr("silent"),
                             HasSubstr("30s (cluster.lease)"))));
}

// A machine that slept, or whose processes were all stopped.
TEST_F(RunCoordinatorTest, APauseOfTheControllerIsNobodysSilence) {
  JoinAll();
  Pass(absl::Seconds(20));
  now_ += absl::Minutes(10);
  coordinator_->Tick(now_);
  Pass(absl::Seconds(9));
  EXPECT_FALSE(coordinator_->ended()) << coordinator_->result();
  Pass(absl::Seconds(2));
  EXPECT_TRUE(coordinator_->ended()) << "silent for 30 s without the pause";
}

// A resume may come without config.yaml; what a refused one was given is not
// it.
TEST_F(RunCoordinatorTest, WritesAMissingConfigOnceEverybodyHasJoined) {
  const std::string path = RunPaths(folder_.path()).config();
  Join(1);
  Join(2);
  EXPECT_FALSE(std::filesystem::exists(path));
  Join(3);
  RV_ASSERT_OK_AND_ASSIGN(const std::string written, ReadTextFile(path));
  EXPECT_EQ(written, ToYaml(config_));
}

TEST_F(RunCoordinatorTest, MarksCheckpointsByTimeOneAtATime) {
  JoinAll();
  const auto marks = [this] {
    int count = 0;
    for (const v1::ScheduleEntry& entry : log_->entries()) {
      count += entry.has_checkpoint() ? 1 : 0;
    }
    return count;
  };
  const auto minutes = [this](int count) {
    for (int i = 0; i < 3 * count; ++i) {
      Pass(absl::Seconds(20));
      BeatAll(2);
    }
  };
  minutes(4);
  EXPECT_EQ(marks(), 0);
  minutes(2);
  EXPECT_EQ(marks(), 1);
  minutes(12);
  EXPECT_EQ(marks(), 1) << "the first is under way";
  for (StreamId stream : {1, 2, 3}) {
    v1::DaemonMessage message;
    message.mutable_checkpoint_done()->set_step(3);
    Handle(stream, std::move(message));
  }
  minutes(1);
  EXPECT_EQ(marks(), 2);
}

TEST_F(RunCoordinatorTest, WritesAMetricsRowEveryReportInterval) {
  JoinAll();
  const auto rows = [this] {
    const std::string text = ReadBytes(folder_.File("metrics.csv"));
    return std::count(text.begin(), text.end(), '\n') - 1;
  };
  v1::DaemonMessage report;
  report.mutable_report()->set_step(3);
  report.mutable_report()->set_samples(24);
  Handle(1, report);
  Pass(absl::Seconds(1));
  EXPECT_EQ(rows(), 0);
  Pass(absl::Milliseconds(1050));
  EXPECT_EQ(rows(), 1);
  Pass(absl::Seconds(10));
  EXPECT_EQ(rows(), 1) << "nothing new";
  Handle(2, report);
  Pass(absl::Seconds(2));
  EXPECT_EQ(rows(), 2);
}

TEST_F(RunCoordinatorTest, KeepsAPeersWordsShort) {
  JoinAll();
  v1::DaemonMessage message;
  message.mutable_failure()->set_message(std::string(1 << 20, 'x'));
  Handle(2, std::move(message));
  ASSERT_TRUE(coordinator_->ended());
  EXPECT_LT(coordinator_->result().message().size(), 3000u);
}

TEST_F(RunCoordinatorTest, ASetUnderWayThatNeverCompletesCostsLittle) {
  JoinAll();
  for (uint64_t step = 1; step < 5000; ++step) {
    v1::DaemonMessage message;
    message.mutable_checkpoint_done()->set_step(step);
    Handle(1, std::move(message));
  }
  // The newest are known still.
  for (StreamId stream : {2, 3}) {
    v1::DaemonMessage message;
    message.mutable_checkpoint_done()->set_step(4998);
    Handle(stream, std::move(message));
  }
  EXPECT_TRUE(std::filesystem::exists(
      folder_.File("checkpoints/step-0000004998/COMPLETE")));
}

}  // namespace
}  // namespace rivulet
