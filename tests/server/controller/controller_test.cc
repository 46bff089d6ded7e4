// A run as the controller leads it, from the first join to its files.

#include "server/controller/controller.h"

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/daemon/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/checkpoint/tensor_file.h"
#include "nlohmann/json.hpp"
#include "proto/controller.grpc.pb.h"
#include "tests/server/controller/controller_test_util.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Cluster;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::SendWeights;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::Summary;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::TestConfig;
using ::rivulet::testing::TestController;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ControllerTest, ARunGoesFromTheFirstJoinToItsFiles) {
  const TempFolder folder;
  const Config config = TestConfig();
  const auto plan = PlanOf(config);
  auto running = std::make_unique<TestController>(config, folder.path());
  TestController& controller = *running;
  Cluster cluster(controller, config);
  EXPECT_EQ(cluster.start.step(), 0u);
  EXPECT_EQ(cluster.start.shard_addresses(0), "127.0.0.1:1");
  ASSERT_EQ(cluster.start.entries_size(), 1);
  EXPECT_EQ(cluster.start.entries(0).seq(), 1u);
  ASSERT_EQ(cluster.start.entries(0).view().members_size(), 2);
  EXPECT_EQ(cluster.start.entries(0).view().members(1).incarnation(),
            cluster.welcomes[1].incarnation());
  EXPECT_EQ(cluster.welcomes[0].job().size(), 32u);
  EXPECT_EQ(cluster.welcomes[0].job(), cluster.welcomes[2].job());

  // Five steps are reported: a checkpoint is due.
  cluster.worker(0).SendReport(5);
  RV_ASSERT_OK_AND_ASSIGN(auto entry, cluster.shard().Read());
  EXPECT_TRUE(entry.entry().has_checkpoint());
  EXPECT_EQ(entry.entry().seq(), 2u);
  for (auto& daemon : cluster.daemons) daemon->SendSaved(7);
  for (int rank = 0; rank < 2; ++rank) {
    v1::DaemonMessage message;
    message.mutable_evaluation()->set_step(80);
    message.mutable_evaluation()->set_correct(9);
    message.mutable_evaluation()->set_samples(15);
    message.mutable_evaluation()->set_loss_sum(3);
    cluster.worker(rank).Send(message);
    cluster.worker(rank).SendFinished(80, true, 4000);
  }
  SendWeights(cluster.shard(), *plan);
  cluster.shard().SendFinished(80, true);
  for (auto& daemon : cluster.daemons) {
    RV_ASSERT_OK_AND_ASSIGN(auto finish, daemon->ReadFinish());
    EXPECT_EQ(finish.code(), 0);
    EXPECT_EQ(daemon->Read().status().code(), absl::StatusCode::kOutOfRange);
  }
  RV_EXPECT_OK(controller.Result());

  const std::string weights = folder.File("weights.safetensors");
  RV_ASSERT_OK_AND_ASSIGN(const TensorFile file, ReadTensorFile(weights));
  EXPECT_EQ(file.tensors[1].values.front(), 1.0f);
  const nlohmann::json summary = Summary(folder.path());
  EXPECT_EQ(summary["status"], "complete");
  EXPECT_EQ(summary["steps"], 80);
  EXPECT_EQ(summary["test_accuracy"], 0.6);
  EXPECT_EQ(summary["seconds"], 2.0);
  EXPECT_EQ(summary["weights_sha256"], *Sha256HexOfFile(weights));
  // The workers' 8000 bytes, and what the shard's session has carried.
  EXPECT_GT(summary["bytes_up"], 8000 + 4 * plan->manifest().num_parameters());
  EXPECT_TRUE(std::filesystem::exists(
      folder.File("checkpoints/step-0000000007/COMPLETE")));
  EXPECT_THAT(ReadBytes(folder.File("metrics.csv")), HasSubstr(",0.2,0.6,"));
  EXPECT_TRUE(std::filesystem::exists(folder.File("config.yaml")));
  EXPECT_EQ(ReadBytes(folder.File("job")),
            absl::StrCat(cluster.welcomes[0].job(), "\n"));

  running.reset();
  EXPECT_THAT(Controller::Create(config, folder.path(), true).status(),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("complete; nothing is left to resume")));
  EXPECT_THAT(Controller::Create(config, folder.path(), false).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST(ControllerTest, AStopIsLoggedAndTheRunGoesOnFromItsCheckpoint) {
  const TempFolder folder;
  const Config config = TestConfig();
  std::string job;
  {
    TestController controller(config, folder.path());
    Cluster cluster(controller, config);
    job = cluster.welcomes[0].job();
    cluster.worker(0).SendReport(3);
    (*controller).RequestStop("told so");
    for (auto& daemon : cluster.daemons) {
      RV_ASSERT_OK_AND_ASSIGN(auto entry, daemon->Read());
      EXPECT_TRUE(entry.entry().stop().checkpoint());
      EXPECT_EQ(entry.entry().stop().reason(), "told so");
      daemon->SendSaved(4);
      daemon->SendFinished(4, false, 1000);
    }
    constexpr char kEnd[] =
        "stopped at step 4 of 80 with a checkpoint; --resume goes on (told so)";
    for (auto& daemon : cluster.daemons) {
      RV_ASSERT_OK_AND_ASSIGN(auto finish, daemon->ReadFinish());
      EXPECT_EQ(finish.code(), static_cast<int>(absl::StatusCode::kCancelled));
      EXPECT_EQ(finish.message(), kEnd);
    }
    EXPECT_THAT(controller.Result(),
                StatusIs(absl::StatusCode::kCancelled, kEnd));
    EXPECT_EQ(Summary(folder.path())["status"], "stopped");
    EXPECT_EQ(Summary(folder.path())["steps"], 4);
    EXPECT_TRUE(std::filesystem::exists(
        folder.File("checkpoints/step-0000000004/COMPLETE")));
  }
  const int64_t bytes_before = Summary(folder.path())["bytes_up"];
  Config changed = config;
  changed.optimizer.learning_rate = 0.01;
  EXPECT_THAT(Controller::Create(changed, folder.path(), true).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("another config"),
                             HasSubstr("optimizer.learning_rate is 0.05 for"),
                             HasSubstr("0.01 for this start"))));
  EXPECT_THAT(
      Controller::Create(config, folder.path(), false).status(),
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--resume")));
  TestController controller(config, folder.path(), /*resume=*/true);
  Cluster cluster(controller, config, std::vector<uint64_t>{4, 2}, job);
  EXPECT_EQ(cluster.welcomes[0].job(), job);
  EXPECT_EQ(cluster.start.step(), 4u);
  ASSERT_EQ(cluster.start.entries_size(), 1) << "what was before is history";
  EXPECT_TRUE(cluster.start.entries(0).has_view());
  EXPECT_EQ(cluster.start.entries(0).seq(), 3u) << "after a view and a stop";
  EXPECT_EQ(cluster.welcomes[0].generation(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    cluster.worker(rank).SendFinished(80, true, 500);
  }
  SendWeights(cluster.shard(), *PlanOf(config));
  cluster.shard().SendFinished(80, true);
  RV_ASSERT_OK(cluster.shard().ReadFinish().status());
  RV_EXPECT_OK(controller.Result());
  const nlohmann::json summary = Summary(folder.path());
  EXPECT_EQ(summary["status"], "complete");
  EXPECT_EQ(summary["seconds"], 4.0) << "both parts";
  EXPECT_GE(summary["bytes_up"], bytes_before + 1000);
}

TEST(ControllerTest, WatchersSeeTheRunFromWaitingToItsEnd) {
  const TempFolder folder;
  const Config config = TestConfig();
  TestController controller(config, folder.path());
  const auto stub = v1::Controller::NewStub(grpc::CreateChannel(
      controller.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto watch = stub->Watch(&context, v1::WatchRequest());
  const auto read_until = [&](v1::RunStatus::Phase phase) {
    v1::RunStatus status;
    while (watch->Read(&status)) {
      if (status.phase() == phase) return status;
    }
    return v1::RunStatus();
  };
  EXPECT_THAT(read_until(v1::RunStatus::WAITING).message(),
              HasSubstr("0 of 2 workers"));
  Cluster cluster(controller, config);
  const v1::RunStatus training = read_until(v1::RunStatus::TRAINING);
  EXPECT_EQ(training.total_steps(), 80u);
  EXPECT_EQ(training.first_step(), 0u);
  {
    grpc::ClientContext gone;  // a watcher that leaves harms nobody
    const auto other = stub->Watch(&gone, v1::WatchRequest());
    v1::RunStatus status;
    other->Read(&status);
    gone.TryCancel();
  }
  v1::DaemonMessage message;
  message.mutable_failure()->set_message("over");
  cluster.worker(0).Send(message);
  EXPECT_THAT(read_until(v1::RunStatus::FAILED).message(), HasSubstr("over"));
  v1::RunStatus status;
  EXPECT_FALSE(watch->Read(&status));
  EXPECT_TRUE(watch->Finish().ok());
  EXPECT_FALSE(controller.Result().ok());
}

TEST(ControllerTest, OneDaemonsFailureEndsTheRunForEverybodyWithItsReason) {
  const TempFolder folder;
  const Config config = TestConfig();
  TestController controller(config, folder.path());
  Cluster cluster(controller, config);
  cluster.worker(0).SendReport(3);
  v1::DaemonMessage message;
  message.mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kDataLoss));
  message.mutable_failure()->set_message("record 7 is damaged");
  cluster.worker(1).Send(message);
  for (auto& daemon : cluster.daemons) {
    RV_ASSERT_OK_AND_ASSIGN(auto finish, daemon->ReadFinish());
    EXPECT_EQ(finish.code(), static_cast<int>(absl::StatusCode::kDataLoss));
    EXPECT_EQ(finish.message(), "worker 1 (testhost): record 7 is damaged");
  }
  EXPECT_THAT(controller.Result(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Summary(folder.path())["status"], "failed");
  EXPECT_EQ(Summary(folder.path())["error"],
            "worker 1 (testhost): record 7 is damaged");
}

TEST(ControllerTest, ADaemonThatGoesAwayEndsTheRun) {
  const TempFolder folder;
  const Config config = TestConfig();
  TestController controller(config, folder.path());
  Cluster cluster(controller, config);
  cluster.worker(1).Cancel();
  RV_ASSERT_OK_AND_ASSIGN(auto finish, cluster.worker(0).ReadFinish());
  EXPECT_THAT(finish.message(), HasSubstr("worker 1 (testhost) went away"));
  EXPECT_THAT(controller.Result(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker 1")));
}

TEST(ControllerTest, ADaemonThatIsSilentBeyondItsLeaseEndsTheRun) {
  const TempFolder folder;
  Config config = TestConfig();
  config.cluster.lease = absl::Seconds(1);
  TestController controller(config, folder.path());
  Cluster cluster(controller, config);
  // The others keep theirs.
  for (int i = 0; i < 6; ++i) {
    v1::DaemonMessage message;
    message.mutable_heartbeat()->set_step(1);
    cluster.worker(0).Send(message);
    cluster.shard().Send(message);
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(controller.Result(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("worker 1"), HasSubstr("silent"))));
}

}  // namespace
}  // namespace rivulet
