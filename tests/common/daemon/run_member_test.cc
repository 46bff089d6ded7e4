#include "common/daemon/run_member.h"

#include <atomic>
#include <memory>

#include "common/base/sync.h"
#include "common/daemon/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/scripted_service.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ScriptedController;
using ::rivulet::testing::ScriptedServer;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ControllerSide =
    grpc::ServerReaderWriter<v1::ControllerMessage, v1::DaemonMessage>;

// What a scripted controller is told by one member.
struct Told {
  v1::Hello hello;
  v1::Failure failure;
  Notification stop;
};

// Welcomes one member to job `job` and answers a failure with `verdict`, where
// there is one.
ScriptedController::Script Host(Told* told, const std::string& job,
                                absl::Status verdict = absl::OkStatus()) {
  return [=](ControllerSide* stream) {
    v1::DaemonMessage message;
    stream->Read(&message);
    told->hello = message.hello();
    v1::ControllerMessage answer;
    answer.mutable_welcome()->set_protocol(1);
    answer.mutable_welcome()->set_job(job);
    answer.mutable_welcome()->set_incarnation(1);
    stream->Write(answer);
    while (stream->Read(&message)) {
      if (message.has_stop()) told->stop.Notify();
      if (!message.has_failure()) continue;
      told->failure = message.failure();
      v1::ControllerMessage finish;
      finish.mutable_finish()->set_code(static_cast<int>(verdict.code()));
      finish.mutable_finish()->set_message(std::string(verdict.message()));
      stream->Write(finish);
    }
    return grpc::Status::OK;
  };
}

class RunMemberTest : public ::testing::Test {
 protected:
  std::unique_ptr<RunMember> Join(const std::string& address,
                                  bool resume = false, int index = 3) {
    Config config;
    config.cluster.controller = address;
    config.cluster.join_timeout = absl::Seconds(10);
    config.checkpoint.keep = 2;
    auto member = std::make_unique<RunMember>(
        config,
        RunMember::Options{.role = v1::ROLE_WORKER,
                           .index = index,
                           .run_dir = folder_.path(),
                           .resume = resume,
                           .stop_requested = [this] { return stop_.load(); }});
    EXPECT_EQ(member->FindCheckpoints(), absl::OkStatus());
    EXPECT_EQ(member->Join("m0", ""), absl::OkStatus());
    return member;
  }

  const TempFolder folder_;
  std::atomic<bool> stop_{false};
};

TensorFile State(float value) {
  TensorFile file;
  file.tensors.push_back({"p", {1}, {value}});
  return file;
}

TEST_F(RunMemberTest, DialsNoPortThatIsStillToBePicked) {
  Config config;
  config.cluster.controller = "127.0.0.1:0";
  RunMember member(config, RunMember::Options{.role = v1::ROLE_WORKER,
                                              .index = 0,
                                              .run_dir = folder_.path(),
                                              .resume = false,
                                              .stop_requested = nullptr});
  RV_ASSERT_OK(member.FindCheckpoints());
  EXPECT_THAT(member.Join("m0", ""),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cluster.controller: found 127.0.0.1:0")));
}

TEST_F(RunMemberTest, ComesBackWithItsCheckpoints) {
  Told told;
  const ScriptedServer<ScriptedController> server(Host(&told, "abc"));
  {
    const auto member = Join(server.address());
    EXPECT_EQ(told.hello.index(), 3u);
    EXPECT_EQ(told.hello.job(), "");
    EXPECT_EQ(told.hello.manifest_hash(), "m0");
    EXPECT_EQ(told.hello.config_hash(), Sha256Hex(told.hello.config()));
    EXPECT_FALSE(told.hello.resume());
    for (int step = 10; step <= 50; step += 10) {
      RV_ASSERT_OK(
          member->SaveCheckpoint(step, State(static_cast<float>(step))));
    }
  }
  const auto member = Join(server.address(), /*resume=*/true);
  EXPECT_TRUE(told.hello.resume());
  EXPECT_EQ(told.hello.job(), "abc");
  EXPECT_THAT(told.hello.checkpoints(), ElementsAre(50, 40, 30))
      << "the one under way and checkpoint.keep before it";
  RV_ASSERT_OK_AND_ASSIGN(const TensorFile file, member->LoadCheckpoint(40));
  EXPECT_THAT(file.Find("p")->values, ElementsAre(40));
}

TEST_F(RunMemberTest, RefusesToStartOverItsCheckpoints) {
  Told told;
  const ScriptedServer<ScriptedController> server(Host(&told, "abc"));
  RV_ASSERT_OK(Join(server.address())->SaveCheckpoint(10, State(1)));
  RunMember fresh(Config(), {.role = v1::ROLE_WORKER,
                             .index = 3,
                             .run_dir = folder_.path(),
                             .resume = false,
                             .stop_requested = nullptr});
  EXPECT_THAT(fresh.FindCheckpoints(),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("checkpoints of worker 3"),
                             HasSubstr("--resume"))));
}

TEST_F(RunMemberTest, RefusesTheCheckpointOfAnotherRun) {
  Told told;
  {
    const ScriptedServer<ScriptedController> server(Host(&told, "abc"));
    RV_ASSERT_OK(Join(server.address())->SaveCheckpoint(10, State(1)));
  }
  const ScriptedServer<ScriptedController> server(Host(&told, "xyz"));
  const auto member = Join(server.address(), /*resume=*/true);
  EXPECT_THAT(member->LoadCheckpoint(10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(member->PathOfCheckpoint(10)),
                             HasSubstr("its job is abc, expected xyz"))));
  EXPECT_THAT(member->LoadCheckpoint(11),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("0000000011")));
}

TEST_F(RunMemberTest, PassesOnAWishToStop) {
  Told told;
  const ScriptedServer<ScriptedController> server(Host(&told, "abc"));
  const auto member = Join(server.address());
  EXPECT_FALSE(told.stop.HasBeenNotified());
  stop_ = true;
  EXPECT_TRUE(told.stop.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST_F(RunMemberTest, TellsItsFailureAndTakesTheControllersVerdict) {
  Told told;
  const ScriptedServer<ScriptedController> server(
      Host(&told, "abc", absl::InternalError("worker 3: no disk")));
  const auto member = Join(server.address());
  EXPECT_THAT(member->Conclude(absl::DataLossError("no disk")),
              StatusIs(absl::StatusCode::kInternal, "worker 3: no disk"));
  EXPECT_EQ(told.failure.message(), "no disk");
  EXPECT_EQ(told.failure.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(member->Conclude(absl::UnavailableError("a stream broke")),
              StatusIs(absl::StatusCode::kInternal, "worker 3: no disk"))
      << "an echo of the end";
}

TEST_F(RunMemberTest, KeepsItsOwnFailureWhereTheControllerHasNone) {
  Told told;
  const ScriptedServer<ScriptedController> server(Host(&told, "abc"));
  const auto member = Join(server.address());
  EXPECT_THAT(member->Conclude(absl::DataLossError("no disk")),
              StatusIs(absl::StatusCode::kDataLoss, "no disk"));
}

}  // namespace
}  // namespace rivulet
