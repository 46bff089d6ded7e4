// Who may join a controller and when, and who is told what otherwise.

#include <filesystem>

#include "absl/time/time.h"
#include "common/daemon/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/controller.grpc.pb.h"
#include "tests/server/controller/controller_test_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Cluster;
using ::rivulet::testing::Daemon;
using ::rivulet::testing::Hello;
using ::rivulet::testing::IsOk;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::TestConfig;
using ::rivulet::testing::TestController;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ControllerTest, RefusesStrangersNamesBothSidesAndWaitsOn) {
  const TempFolder folder;
  const Config config = TestConfig();
  TestController controller(config, folder.path());
  v1::Hello hello = Hello(config, v1::ROLE_WORKER, 0);
  hello.set_job("another");
  Daemon other_job(controller, hello);
  EXPECT_THAT(other_job.Read().status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the controller has"),
                             HasSubstr("worker 0 another"))));
  Config changed = config;
  changed.optimizer.learning_rate = 0.07;
  Daemon other_config(controller, Hello(changed, v1::ROLE_WORKER, 0));
  EXPECT_THAT(other_config.Read().status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(ConfigHash(changed, false))));
  hello = Hello(changed, v1::ROLE_WORKER, 0);
  hello.set_config(CanonicalConfig(changed, false));
  Daemon tells_more(controller, hello);
  EXPECT_THAT(tells_more.Read().status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("another config: optimizer.learning_rate is "
                                 "0.05 for the controller, 0.07 for worker "
                                 "0")));
  hello = Hello(config, v1::ROLE_SHARD, 0);
  hello.set_protocol_min(9);
  hello.set_protocol_max(9);
  Daemon newer(controller, hello);
  EXPECT_THAT(newer.Read().status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("shard 0 9 to 9")));
  Cluster cluster(controller, config);  // and the run begins all the same
  Daemon late(controller, Hello(config, v1::ROLE_WORKER, 0));
  EXPECT_THAT(late.Read().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("after the run has started")));
}

TEST(ControllerTest, SaysWhoIsMissingWhenTheTimeToJoinIsOver) {
  const TempFolder folder;
  Config config = TestConfig();
  config.cluster.join_timeout = absl::Seconds(1);
  TestController controller(config, folder.path());
  Daemon worker(controller, Hello(config, v1::ROLE_WORKER, 1));
  RV_ASSERT_OK_AND_ASSIGN(auto finish, worker.ReadFinish());
  EXPECT_EQ(finish.code(),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(controller.Result(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("1 of 2 workers, 0 of 1 shards: waiting for "
                                 "worker 0, shard 0")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("summary.json")));
}

TEST(ControllerTest, ANewerDaemonOfARankSupersedesTheOneThatWaits) {
  const TempFolder folder;
  const Config config = TestConfig();
  TestController controller(config, folder.path());
  Daemon old(controller, Hello(config, v1::ROLE_WORKER, 0));
  RV_ASSERT_OK_AND_ASSIGN(auto first, old.Read());
  Daemon fresh(controller, Hello(config, v1::ROLE_WORKER, 0));
  RV_ASSERT_OK_AND_ASSIGN(auto second, fresh.Read());
  EXPECT_GT(second.welcome().incarnation(), first.welcome().incarnation());
  EXPECT_THAT(old.Read().status(), StatusIs(absl::StatusCode::kAborted));
}

TEST(ControllerTest, AStopBeforeTheStartEndsAtOnceAndLeavesNoRun) {
  const TempFolder folder;
  const Config config = TestConfig();
  {
    TestController controller(config, folder.path());
    Daemon worker(controller, Hello(config, v1::ROLE_WORKER, 0));
    RV_ASSERT_OK(worker.Read().status());
    v1::DaemonMessage message;
    message.mutable_stop()->set_reason("Ctrl-C");
    worker.Send(message);
    EXPECT_THAT(controller.Result(), StatusIs(absl::StatusCode::kCancelled,
                                              HasSubstr("Ctrl-C (worker 0)")));
  }
  EXPECT_THAT(Controller::Create(config, folder.path(), false), IsOk());
}

TEST(ControllerTest, AHelloThatComesAfterTheEndIsToldHowItEnded) {
  const TempFolder folder;
  const Config config = TestConfig();
  TestController controller(config, folder.path());
  Daemon late(controller);  // its open stream is waited for
  Daemon worker(controller, Hello(config, v1::ROLE_WORKER, 0));
  RV_ASSERT_OK(worker.Read().status());
  (*controller).RequestStop("told so");
  RV_ASSERT_OK(worker.ReadFinish().status());
  late.SendHello(Hello(config, v1::ROLE_WORKER, 1));
  // Not as an error of the stream: a daemon would dial again after some.
  RV_ASSERT_OK_AND_ASSIGN(auto welcome, late.Read());
  EXPECT_TRUE(welcome.has_welcome());
  RV_ASSERT_OK_AND_ASSIGN(auto finish, late.ReadFinish());
  EXPECT_EQ(finish.code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_THAT(finish.message(), HasSubstr("told so"));
}

}  // namespace
}  // namespace rivulet
