// A whole run in this process: what `rivulet train` does with a controller,
// shards and workers as daemons, done by their own code in threads, without
// sockets. Made for experiments: N workers cost no more than their images.
//
//   RV_ASSIGN_OR_RETURN(InProcessOutcome outcome,
//                       RunInProcess(config, {.run_dir = "runs/a"}));
//
// What is the same as with daemons:
//
// - The bits. RunWorker, ShardMember and RunCoordinator are the daemons' own;
//   only what carries their messages (LocalHub) and when they run differs, and
//   a run's weights depend on neither. Each worker computes with one thread, so
//   weights_sha256 is that of daemons with local.threads: 1.
// - The run folder: config.yaml, metrics.csv, summary.json, checkpoints/,
//   weights.safetensors. Daemons resume what was begun here, and the other way
//   round, in the same bits. Only logs/ are the caller's.
// - Errors: a worker whose steps are voided, a full disk or a damaged
//   checkpoint end the run with the status that daemons end with.
// - Bytes: each message is counted as it would be on its stream. What depends
//   on time differs as between two runs of daemons: heartbeats, and reports
//   between evaluations and checkpoints. So do the digits of addresses.
//
// What differs: at most `cores` workers compute at once (data are loaded by a
// thread of each worker beside that, as in the daemons); no silence counts as a
// loss (cluster.lease); and checkpoints by steps are marked at once when they
// are due, where daemons hear of a step by the next report or heartbeat.

#ifndef RIVULET_WORKER_LAB_IN_PROCESS_CLUSTER_H_
#define RIVULET_WORKER_LAB_IN_PROCESS_CLUSTER_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/daemon/config.h"
#include "proto/controller.pb.h"

namespace rivulet {

struct InProcessOptions {
  std::string run_dir = {};
  bool resume = false;
  // Once true, the run checkpoints and stops at its next step boundary. Called
  // often and from any thread; may be null.
  std::function<bool()> stop_requested = nullptr;
  // How many workers compute at once; 0: as many as there are cores.
  int cores = 0;
  // From here on this process logs into <run_dir>/logs/<log>.log, under that
  // name; empty: it goes on as before.
  std::string log = {};
  // Called about every 50 ms and at the end, from the caller's thread. May be
  // null.
  std::function<void(const v1::RunStatus&)> progress = nullptr;
};

struct InProcessOutcome {
  std::string weights_sha256;
  std::string summary_json;  // as in the run folder
};

// Blocks until the run is over and every thread has ended. Cancelled when it
// was stopped (summary.json is there then), or the error that ended it:
// InvalidArgument for a config that cannot run or is not that of the folder's
// run; NotFound or DataLoss for data or a checkpoint; AlreadyExists when the
// folder is in use, holds a run and `resume` is false, or a complete one;
// FailedPrecondition when the weights or too many gradients are not finite; an
// error of the disk, naming the file.
absl::StatusOr<InProcessOutcome> RunInProcess(const Config& config,
                                              const InProcessOptions& options);

}  // namespace rivulet

#endif  // RIVULET_WORKER_LAB_IN_PROCESS_CLUSTER_H_
