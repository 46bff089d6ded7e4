// Controller.Watch: the newest status of the run, to any number of watchers. A
// watcher that reads slowly skips what is old.
//
// Thread-safe. Reactors belong to gRPC; the destructor waits for the last, so
// Close() and shut the server down first.

#ifndef RIVULET_SERVER_CONTROLLER_STATUS_BROADCASTER_H_
#define RIVULET_SERVER_CONTROLLER_STATUS_BROADCASTER_H_

#include <grpcpp/grpcpp.h>

#include <optional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "common/base/sync.h"
#include "proto/controller.pb.h"

namespace rivulet {

class StatusBroadcaster {
 public:
  StatusBroadcaster() = default;
  StatusBroadcaster(const StatusBroadcaster&) = delete;
  StatusBroadcaster& operator=(const StatusBroadcaster&) = delete;
  ~StatusBroadcaster();

  // The handler of the RPC: sends the newest status at once, or as soon as
  // there is one. Owned by gRPC.
  grpc::ServerWriteReactor<v1::RunStatus>* Accept() ABSL_LOCKS_EXCLUDED(mu_);

  void Publish(const v1::RunStatus& status) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends every watcher's stream with OK once it has the newest status. New ones
  // get that status and the end. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  int num_watchers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Watcher;

  void WriteOn(Watcher* watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  CondVar idle_;
  std::optional<v1::RunStatus> newest_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_STATUS_BROADCASTER_H_
