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

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
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
  // How long the controller may take to end the run for everybody after a child
  // has ended otherwise than well: it lets the others read why, for up to 6 s.
  absl::Duration controller_grace = absl::Seconds(10);
  // How long the others may take to leave after the controller has ended. By
  // then all that a run keeps is on disk: a child that is killed loses nothing.
  absl::Duration leave_grace = absl::Seconds(2);
  // Polled while the controller gets ready; true gives up with Cancelled. May
  // be null.
  std::function<bool()> cancelled;
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

  // Looks at the children, and sees to it that one end is everybody's: a child
  // that has ended too early has the controller told to stop, and once the
  // controller has ended, the rest is told to stop and, a little later, killed.
  // True once all have ended.
  bool Poll();
  // Asks the controller to stop the run at a step boundary, with a checkpoint,
  // or at once when it has not begun.
  void RequestStop();
  // Kills all.
  void KillAll();

  // After Poll() returned true: OK when the run is complete; Cancelled, with
  // the controller's words, when it was stopped; else why it failed, with the
  // log file to read. The reason is that of a process that something outside
  // killed, or else the controller's verdict, or else, when the controller was
  // only told to stop, that of the child that failed first. What a child says
  // that was killed by this object in cleaning up counts for nothing.
  absl::Status Result();

 private:
  LocalCluster(LocalClusterOptions options, Pipe life)
      : options_(std::move(options)), life_(std::move(life)) {}
  absl::Status StartController();
  absl::Status StartDaemon(const std::string& name, const std::string& program,
                           const std::vector<std::string>& role);
  std::vector<std::string> CommonArguments(const std::string& program) const;
  // Keeps in mind who has failed.
  void Note();
  // SIGTERM, once: a second would end it without cleaning up.
  void Tell(Child& child);
  // Whether it ended, as it did, because of this object.
  bool EndedByUs(const Child& child, const ChildExit& exit) const;
  absl::Status Reason(Child& child) const;

  const LocalClusterOptions options_;
  Pipe life_;
  std::string address_;
  std::vector<std::unique_ptr<Child>> children_;  // the controller first
  std::set<const Child*> told_;                   // to stop, by Tell
  std::set<const Child*> killed_;                 // by KillAll
  Child* first_failed_ = nullptr;
  // When the first child ended otherwise than well, and when the controller
  // ended.
  absl::Time first_end_ = absl::InfiniteFuture();
  absl::Time controller_end_ = absl::InfiniteFuture();
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_CLI_LOCAL_CLUSTER_H_
