// One worker of a run, from its config to its end: what `rivulet-worker` does,
// usable in-process.
//
//   absl::Status status = RunWorker(config, {.rank = 0, .run_dir = "runs/a"});

#ifndef RIVULET_WORKER_WORKER_DAEMON_H_
#define RIVULET_WORKER_WORKER_DAEMON_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/daemon/config.h"
#include "common/daemon/message_stream.h"
#include "data/dataset.h"
#include "proto/controller.pb.h"
#include "proto/exchange.pb.h"
#include "worker/core_gate.h"

namespace rivulet {

// What a process that holds a run's other members as well gives its workers.
struct WorkerHost {
  Connector<v1::DaemonMessage, v1::ControllerMessage> controller;
  // Of each shard, in order.
  std::vector<Connector<v1::WorkerMessage, v1::ShardMessage>> shards;
  // Opened once for all.
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  CoreGate* gate = nullptr;  // held while computing; borrowed, may be null
};

struct WorkerOptions {
  int rank = 0;
  bool resume = false;
  std::string run_dir;  // checkpoints are kept under it
  // Polled about every 50 ms from a thread of its own. Once true, the
  // controller is asked to stop the run; the worker goes on until it does. May
  // be null.
  std::function<bool()> stop_requested;
  // Called before the commit of each step's push; tests delay a worker here.
  // May be null.
  std::function<void(int64_t step)> before_push;
  // Null for a process of its own. Borrowed for the worker's life.
  const WorkerHost* host = nullptr;
};

// Opens the data, joins, trains, and waits for the controller's verdict, which
// it returns: OK when the run is complete, Cancelled when it was stopped.
// Otherwise InvalidArgument for a rank or config that cannot be; NotFound or
// DataLoss for data or a checkpoint; AlreadyExists when the run folder holds
// checkpoints of this member and `resume` is false; DeadlineExceeded or
// Unavailable when a peer does not come or goes away. Cancelled too when told
// to stop before it has joined.
absl::Status RunWorker(const Config& config, const WorkerOptions& options);

}  // namespace rivulet

#endif  // RIVULET_WORKER_WORKER_DAEMON_H_
