// A whole cluster on this machine: the controller, the shards and the workers
// of one config as child processes. None of them outlives this object, or this
// process.
//
//   RV_ASSIGN_OR_RETURN(auto cluster, LocalCluster::Start(options));
//   while (!cluster->Poll()) ...
//   absl::Status result = cluster->Result();
//
// Thread-compatible.

#ifndef RIVULET_WORKER_CLI_LOCAL_CLUSTER_H_
#define RIVULET_WORKER_CLI_LOCAL_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/cli/child.h"

namespace rivulet {

struct LocalClusterOptions {
  std::string program_dir;  // where rivulet-controller and the others are
  std::string config_path;
  std::string run_dir;
  std::vector<std::string> overrides;  // --set of every daemon
  bool resume = false;
  int workers = 1;
  int shards = 1;
  absl::Duration ready_timeout = absl::Seconds(60);
};

class LocalCluster {
 public:
  // Starts the controller, waits until it listens, then starts the others. The
  // controller's own reason when it refuses the run folder or cannot listen.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      const LocalClusterOptions& options);
  ~LocalCluster();  // kills what still runs

  // Where the controller listens, host:port.
  const std::string& controller_address() const { return address_; }

  // Looks at the children; true once all have ended, or the first failure has
  // left the rest too much time to end by itself, after which they are killed.
  bool Poll();
  // Asks the controller to stop the run at a step boundary, with a checkpoint.
  void RequestStop();
  // Kills all.
  void KillAll();

  // After Poll() returned true: OK, or the reason of the child that failed
  // first, with its name and log file.
  absl::Status Result();

 private:
  LocalCluster(LocalClusterOptions options, Pipe life)
      : options_(std::move(options)), life_(std::move(life)) {}
  absl::Status StartController();
  absl::Status StartDaemon(const std::string& name, const std::string& program,
                           const std::vector<std::string>& role);
  std::vector<std::string> CommonArguments(const std::string& program) const;
  absl::Status Reason(Child& child) const;

  const LocalClusterOptions options_;
  Pipe life_;
  std::string address_;
  std::vector<std::unique_ptr<Child>> children_;  // the controller first
  Child* first_failed_ = nullptr;
  bool killed_ = false;
  bool told_ = false;  // whether the controller was told of the failure
  absl::Time failed_at_ = absl::InfiniteFuture();
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_CLI_LOCAL_CLUSTER_H_
