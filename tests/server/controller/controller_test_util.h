// A whole controller over real gRPC streams on loopback, with raw clients in
// the place of daemons.

#ifndef RIVULET_TESTS_SERVER_CONTROLLER_CONTROLLER_TEST_UTIL_H_
#define RIVULET_TESTS_SERVER_CONTROLLER_CONTROLLER_TEST_UTIL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/daemon/digest.h"
#include "common/daemon/grpc_util.h"
#include "nlohmann/json.hpp"
#include "proto/controller.grpc.pb.h"
#include "server/controller/controller.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/temp_folder.h"

namespace rivulet::testing {

inline Config TestConfig() {
  Config config = SmallConfig("fixed", /*workers=*/2, /*shards=*/1);
  config.cluster.controller = "127.0.0.1:0";
  config.cluster.join_timeout = absl::Seconds(20);
  config.cluster.lease = absl::Seconds(20);
  config.checkpoint.every = absl::ZeroDuration();
  config.checkpoint.every_steps = 5;
  config.report.every = absl::Milliseconds(100);
  return config;
}

inline v1::Hello Hello(const Config& config, v1::Role role, int index) {
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

inline nlohmann::json Summary(const std::string& dir) {
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
inline void SendWeights(Daemon& shard, const RunPlan& plan) {
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

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_SERVER_CONTROLLER_CONTROLLER_TEST_UTIL_H_
