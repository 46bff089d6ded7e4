// A daemon's side of Controller.Session: joins, keeps the lease, holds the
// schedule's entries, and learns when and how the run ends.
//
//   RV_ASSIGN_OR_RETURN(auto session, SessionClient::Join(std::move(options)));
//   RV_ASSIGN_OR_RETURN(v1::Start start, session->WaitForStart());
//   ...
//   session->Send(std::move(message));
//   absl::Status result = session->WaitForFinish();
//
// Thread-safe after Join.

#ifndef RIVULET_COMMON_DAEMON_SESSION_CLIENT_H_
#define RIVULET_COMMON_DAEMON_SESSION_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/message_stream.h"
#include "proto/controller.pb.h"

namespace rivulet {

class SessionClient {
 public:
  struct Options {
    std::string controller;  // host:port
    // How to reach it; null: by gRPC.
    Connector<v1::DaemonMessage, v1::ControllerMessage> connect;
    v1::Hello hello;
    absl::Duration join_timeout = absl::Minutes(5);
    absl::Duration heartbeat_every = absl::Seconds(5);
    // A controller that does not answer for so long is given up.
    absl::Duration patience = kDefaultPatience;
    // Polled while dialling; true gives up with Cancelled. May be null.
    std::function<bool()> cancelled;
  };

  // Dials with jittered, capped back-off until the controller has answered.
  // DeadlineExceeded names address, elapsed time and the last error; what the
  // controller itself refuses (wrong job, config, version) is final at once.
  static absl::StatusOr<std::unique_ptr<SessionClient>> Join(Options options);

  ~SessionClient();  // Close()

  const v1::Welcome& welcome() const;

  // Blocks until everybody has joined, or the run ends.
  absl::StatusOr<v1::Start> WaitForStart();

  // Newest entry that has arrived; 0 before the first.
  uint64_t newest_seq() const;
  // Blocks until entry `seq` (from the first of Start on) is there.
  // DeadlineExceeded after `timeout`; NotFound for an older one; the run's own
  // end otherwise.
  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(uint64_t seq,
                                                 absl::Duration timeout);

  // Enqueues; never blocks. Dropped once the session has ended.
  void Send(v1::DaemonMessage message);
  // What the next heartbeats say.
  void SetStep(uint64_t step);

  // Blocks until the controller says how the run ended: OK, or its reason.
  // Unavailable when the session broke.
  absl::Status WaitForFinish();
  // As WaitForFinish, but only looks: nothing while the run goes on.
  bool Ended(absl::Status* result) const;
  // `callback` runs once, from a gRPC thread, when the session ends for any
  // reason; at once if it has. It must not block or call back into here.
  void OnEnd(std::function<void(const absl::Status&)> callback);

  // Ends the stream from this side, after what was enqueued is written (for at
  // most 5 s). Idempotent.
  void Close();

  // Control traffic, both directions.
  const ByteCounter& sent() const;
  const ByteCounter& received() const;

 private:
  class Impl;
  explicit SessionClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_SESSION_CLIENT_H_
