// One shard of a run, from its config to its end: what `rivulet-server` does,
// usable in-process.
//
//   absl::Status status = RunShard(config, {.shard = 0, .run_dir = "runs/a"});

#ifndef RIVULET_SERVER_SHARD_DAEMON_H_
#define RIVULET_SERVER_SHARD_DAEMON_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/daemon/config.h"

namespace rivulet {

struct ShardOptions {
  int shard = 0;
  bool resume = false;
  std::string run_dir;  // checkpoints are kept under it
  // Polled about every 50 ms from a thread of its own. Once true, the
  // controller is asked to stop the run; the shard goes on until it does. May
  // be null.
  std::function<bool()> stop_requested;
  // Called with the address, port bound, once it listens and before it joins;
  // tests put a relay in front of it here. May be null.
  std::function<void(const std::string& address)> on_listening = nullptr;
};

// Listens on local.listen, joins, serves the workers, and waits for the
// controller's verdict, which it returns: OK when the run is complete,
// Cancelled when it was stopped. Otherwise InvalidArgument for a shard, config
// or address that cannot be; Unavailable for a busy port, and for a peer that
// goes away; AlreadyExists when the run folder holds checkpoints of this shard
// and `resume` is false; NotFound or DataLoss for a checkpoint;
// DeadlineExceeded when the controller does not come. Cancelled too when told
// to stop before it has joined.
absl::Status RunShard(const Config& config, const ShardOptions& options);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SHARD_DAEMON_H_
