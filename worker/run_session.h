// What a worker's training loop needs of the controller. RunWorker puts
// SessionClient behind it; tests put something simpler.

#ifndef RIVULET_WORKER_RUN_SESSION_H_
#define RIVULET_WORKER_RUN_SESSION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/controller.pb.h"

namespace rivulet {

// Thread-safe.
class RunSession {
 public:
  virtual ~RunSession() = default;

  // Enqueues; never blocks.
  virtual void Send(v1::DaemonMessage message) = 0;
  // What heartbeats say: steps done.
  virtual void SetStep(int64_t step) = 0;
  // Blocks until schedule entry `seq` has arrived. DeadlineExceeded after
  // `timeout`; the reason of the run's end if that comes first.
  virtual absl::StatusOr<v1::ScheduleEntry> WaitForEntry(
      uint64_t seq, absl::Duration timeout) = 0;
  // Control traffic so far, on the wire.
  virtual int64_t wire_sent() const = 0;
  virtual int64_t wire_received() const = 0;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_RUN_SESSION_H_
