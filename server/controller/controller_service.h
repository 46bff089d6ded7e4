// The Controller service: hands streams to the hub and watchers to the
// broadcaster; RunCoordinator is what happens with the messages. Thread-safe.

#ifndef RIVULET_SERVER_CONTROLLER_CONTROLLER_SERVICE_H_
#define RIVULET_SERVER_CONTROLLER_CONTROLLER_SERVICE_H_

#include "proto/controller.grpc.pb.h"
#include "server/controller/run_coordinator.h"
#include "server/controller/status_broadcaster.h"

namespace rivulet {

class ControllerService final : public v1::Controller::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::DaemonMessage, v1::ControllerMessage>* Session(
      grpc::CallbackServerContext* context) override {
    return hub_.Accept(context);
  }

  grpc::ServerWriteReactor<v1::RunStatus>* Watch(
      grpc::CallbackServerContext*, const v1::WatchRequest*) override {
    return watchers_.Accept();
  }

  SessionHub& hub() { return hub_; }
  StatusBroadcaster& watchers() { return watchers_; }

 private:
  SessionHub hub_;
  StatusBroadcaster watchers_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_CONTROLLER_SERVICE_H_
