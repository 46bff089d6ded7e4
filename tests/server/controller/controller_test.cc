// A whole controller over real gRPC streams on loopback, with raw clients in
// the place of daemons.

#include "server/controller/controller.h"

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/daemon/digest.h"
#include "common/daemon/grpc_util.h"
#include "models/checkpoint/tensor_file.h"
#include "nlohmann/json.hpp"
#include "proto/controller.grpc.pb.h"
#include "server/controller/complete_markers.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

Config TestConfig() {
  Config config = SmallConfig("fixed", /*workers=*/2, /*shards=*/1);
  config.cluster.controller = "127.0.0.1:0";
  config.cluster.join_timeout = absl::Seconds(20);
  config.cluster.lease = absl::Seconds(20);
  config.checkpoint.every = absl::ZeroDuration();
  config.checkpoint.every_steps = 5;
  config.report.every = absl::Milliseconds(100);
  return config;
}

v1::Hello Hello(const Config& config, v1::Role role, int index) {
  v1::Hello hello;
  hello.set_protocol_min(kOldestProtocolVersion);
  hello.set_protocol_max(kProtocolVersion);
  hello.set_role(role);
  hello.set_index(static_cast<uint32_t>(index));
  hello.set_config_hash(ConfigHash(config, /*for_resume=*/false));
  hello.set_manifest_hash(PlanOf(config)->manifest_hash());
  hello.set_host("testhost");
  if (role == v1::ROLE_SHARD) hello.set_address("127.0.0.1:1");
  return hello;
}

// A controller whose Run() is in a thread.
class TestController {
 public:
  TestController(const Config& config, const std::string& dir,
                 bool resume = false) {
    auto created = Controller::Create(config, dir, resume);
    RV_CHECK(created.ok()) << created.status().ToString();
    controller_ = *std::move(created);
    auto address = controller_->Start();
    RV_CHECK(address.ok()) << address.status().ToString();
    address_ = *std::move(address);
    thread_ = std::thread([this] { result_ = controller_->Run(); });
  }
  ~TestController() {
    controller_->RequestStop("the test is over");
    if (thread_.joinable()) thread_.join();
  }

  // How the run ended.
  absl::Status Result() {
    thread_.join();
    return result_;
  }
  Controller& operator*() { return *controller_; }
  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<Controller> controller_;
  std::string address_;
  absl::Status result_;
  std::thread thread_;
};

class Daemon {
 public:
  Daemon(const TestController& controller, const v1::Hello& hello)
      : Daemon(controller) {
    SendHello(hello);
  }
  // Says nothing yet.
  explicit Daemon(const TestController& controller)
      : stub_(v1::Controller::NewStub(grpc::CreateChannel(
            controller.address(), grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(30));
    stream_ = stub_->Session(&context_);
  }
  ~Daemon() { context_.TryCancel(); }

  // The next message, or the error that ended the stream.
  absl::StatusOr<v1::ControllerMessage> Read() {
    v1::ControllerMessage message;
    if (stream_->Read(&message)) return message;
    const grpc::Status status = stream_->Finish();
    return status.ok() ? absl::OutOfRangeError("the stream ended with OK")
                       : FromGrpcStatus(status);
  }
  // Reads on until the run's end comes.
  absl::StatusOr<v1::Finish> ReadFinish() {
    while (true) {
      RV_ASSIGN_OR_RETURN(v1::ControllerMessage message, Read());
      if (message.has_finish()) return message.finish();
    }
  }
  void Send(const v1::DaemonMessage& message) { stream_->Write(message); }
  void SendHello(const v1::Hello& hello) {
    v1::DaemonMessage message;
    *message.mutable_hello() = hello;
    Send(message);
  }
  void Cancel() { context_.TryCancel(); }

  void SendReport(uint64_t step) {
    v1::DaemonMessage message;
    v1::WorkerReport* report = message.mutable_report();
    report->set_step(step);
    report->set_loss_sum(8);
    report->set_samples(8);
    report->mutable_times()->set_total(0.5);
    report->mutable_traffic()->set_wire_up(1000 * step);
    report->mutable_traffic()->set_wire_down(500 * step);
    Send(message);
  }
  void SendSaved(uint64_t step) {
    v1::DaemonMessage message;
    message.mutable_checkpoint_done()->set_step(step);
    Send(message);
  }
  void SendFinished(uint64_t step, bool complete, uint64_t wire_up = 0) {
    v1::DaemonMessage message;
    message.mutable_finished()->set_step(step);
    message.mutable_finished()->set_complete(complete);
    message.mutable_finished()->set_train_seconds(2);
    message.mutable_finished()->set_samples(8 * step);
    message.mutable_finished()->mutable_traffic()->set_wire_up(wire_up);
    Send(message);
  }

 private:
  std::unique_ptr<v1::Controller::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::DaemonMessage, v1::ControllerMessage>>
      stream_;
};

nlohmann::json Summary(const std::string& dir) {
  return nlohmann::json::parse(ReadBytes(dir + "/summary.json"), nullptr,
                               false);
}

// Two workers and a shard that have read Welcome and Start.
struct Cluster {
  Cluster(const TestController& controller, const Config& config,
          std::optional<std::vector<uint64_t>> resume = std::nullopt,
          const std::string& job = "") {
    const std::pair<v1::Role, int> members[] = {
        {v1::ROLE_WORKER, 0}, {v1::ROLE_WORKER, 1}, {v1::ROLE_SHARD, 0}};
    for (const auto& [role, index] : members) {
      v1::Hello hello = Hello(config, role, index);
      hello.set_job(job);
      hello.set_resume(resume.has_value());
      if (resume.has_value()) {
        for (uint64_t step : *resume) hello.add_checkpoints(step);
      }
      daemons.push_back(std::make_unique<Daemon>(controller, hello));
      auto welcome = daemons.back()->Read();
      RV_CHECK(welcome.ok() && welcome->has_welcome())
          << welcome.status().ToString();
      welcomes.push_back(welcome->welcome());
    }
    for (auto& daemon : daemons) {
      auto message = daemon->Read();
      RV_CHECK(message.ok() && message->has_start())
          << message.status().ToString();
      start = message->start();
    }
  }
  Daemon& worker(int rank) { return *daemons[static_cast<size_t>(rank)]; }
  Daemon& shard() { return *daemons[2]; }

  std::vector<std::unique_ptr<Daemon>> daemons;
  std::vector<v1::Welcome> welcomes;
  v1::Start start;
};

// All parameters, each in one piece.
void SendWeights(Daemon& shard, const RunPlan& plan) {
  for (size_t t = 0; t < plan.manifest().parameters.size(); ++t) {
    const int64_t size = plan.manifest().parameters[t].num_elements();
    const std::vector<float> values(static_cast<size_t>(size),
                                    static_cast<float>(t));
    v1::DaemonMessage message;
    message.mutable_weights()->set_tensor(static_cast<uint32_t>(t));
    message.mutable_weights()->set_data(
        reinterpret_cast<const char*>(values.data()), values.size() * 4);
    shard.Send(message);
  }
}

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

TEST(ControllerTest, AResumedRunWithoutACommonCheckpointIsRefused) {
  const TempFolder folder;
  WriteBytes(folder.File("job"), std::string(32, 'a') + "\n");
  RV_ASSERT_OK(MarkCheckpointComplete(RunPaths(folder.path()), 4, "job", 2));
  const Config config = TestConfig();
  TestController controller(config, folder.path(), /*resume=*/true);
  std::vector<std::unique_ptr<Daemon>> daemons;
  for (int i = 0; i < 3; ++i) {
    v1::Hello hello = i < 2 ? Hello(config, v1::ROLE_WORKER, i)
                            : Hello(config, v1::ROLE_SHARD, 0);
    hello.set_resume(true);
    if (i != 1) hello.add_checkpoints(20);
    daemons.push_back(std::make_unique<Daemon>(controller, hello));
  }
  for (auto& daemon : daemons) {
    RV_ASSERT_OK_AND_ASSIGN(auto finish, daemon->ReadFinish());
    EXPECT_EQ(finish.code(), static_cast<int>(absl::StatusCode::kNotFound));
    EXPECT_THAT(finish.message(), HasSubstr("worker 1 has none"));
  }
  EXPECT_THAT(controller.Result(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(std::filesystem::exists(folder.File("summary.json")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("metrics.csv")));
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

TEST(ControllerTest, AMissingJobFileIsNotReplacedWhereThereAreCheckpoints) {
  const TempFolder folder;
  RV_ASSERT_OK(MarkCheckpointComplete(RunPaths(folder.path()), 4, "job", 2));
  EXPECT_THAT(
      Controller::Create(TestConfig(), folder.path(), true).status(),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(folder.File("job")),
                                                  HasSubstr("found 0 bytes"))));
  EXPECT_FALSE(std::filesystem::exists(folder.File("job")));
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

TEST(ControllerTest, ASecondControllerFindsFolderAndPortTaken) {
  const TempFolder folder;
  Config config = TestConfig();
  TestController controller(config, folder.path());
  EXPECT_THAT(Controller::Create(config, folder.path(), false).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  const TempFolder other_folder;
  const std::string fresh = other_folder.File("fresh");
  config.cluster.controller = controller.address();
  {
    RV_ASSERT_OK_AND_ASSIGN(auto other,
                            Controller::Create(config, fresh, false));
    EXPECT_THAT(other->Start().status(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(controller.address()),
                               HasSubstr("cluster.controller"))));
  }
  EXPECT_FALSE(std::filesystem::exists(fresh)) << "nothing half-done stays";
}

TEST(ControllerTest, ADamagedJobFileIsNamed) {
  const TempFolder folder;
  const Config config = TestConfig();
  for (const char* text : {"0123", "not a job at all, but of a good length  ",
                           "0123456789ABCDEF0123456789ABCDEF\n"}) {
    WriteBytes(folder.File("job"), text);
    EXPECT_THAT(Controller::Create(config, folder.path(), true).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(folder.File("job")),
                               HasSubstr("32 hexadecimal digits"))));
  }
}

}  // namespace
}  // namespace rivulet
