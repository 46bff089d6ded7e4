// A gRPC server on a loopback port whose one bidirectional method runs a
// function of the test's: a peer that behaves, or misbehaves, as scripted.
//
//   ScriptedServer<ScriptedShard> server([](auto* stream) {
//     v1::WorkerMessage hello;
//     stream->Read(&hello);
//     return grpc::Status(grpc::StatusCode::ABORTED, "superseded");
//   });

#ifndef RIVULET_TESTS_TESTING_SCRIPTED_SERVICE_H_
#define RIVULET_TESTS_TESTING_SCRIPTED_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/daemon/grpc_util.h"
#include "proto/controller.grpc.pb.h"
#include "proto/exchange.grpc.pb.h"

namespace rivulet::testing {

// Runs the script for each call, in a gRPC thread; what it returns ends the
// stream.
template <typename In, typename Out>
using StreamScript =
    std::function<grpc::Status(grpc::ServerReaderWriter<Out, In>*)>;

class ScriptedShard final : public v1::Shard::Service {
 public:
  using Script = StreamScript<v1::WorkerMessage, v1::ShardMessage>;
  explicit ScriptedShard(Script script) : script_(std::move(script)) {}
  grpc::Status Exchange(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ShardMessage, v1::WorkerMessage>* stream)
      override {
    return script_(stream);
  }

 private:
  const Script script_;
};

class ScriptedController final : public v1::Controller::Service {
 public:
  using Script = StreamScript<v1::DaemonMessage, v1::ControllerMessage>;
  explicit ScriptedController(Script script) : script_(std::move(script)) {}
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ControllerMessage, v1::DaemonMessage>*
          stream) override {
    return script_(stream);
  }

 private:
  const Script script_;
};

// Serves on a free loopback port until destroyed, which cancels open calls.
template <typename Service>
class ScriptedServer {
 public:
  // `configure` may change what all our servers have in common.
  explicit ScriptedServer(
      typename Service::Script script,
      const std::function<void(grpc::ServerBuilder*)>& configure = nullptr)
      : service_(std::move(script)) {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    if (configure != nullptr) configure(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    RV_CHECK(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ScriptedServer() { Stop(); }

  const std::string& address() const { return address_; }
  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_SCRIPTED_SERVICE_H_
