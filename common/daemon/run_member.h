// What a shard and a worker do alike as members of a run: find their
// checkpoints, join, save and prune, pass on a wish to stop, and agree with the
// controller on how it ended.
//
//   RunMember member(config, {.role = v1::ROLE_WORKER, .index = 3, ...});
//   RV_RETURN_IF_ERROR(member.FindCheckpoints());
//   RV_RETURN_IF_ERROR(member.Join(plan->manifest_hash(), /*address=*/""));
//   ...
//   return member.Conclude(std::move(own));
//
// Thread-compatible; session() is thread-safe.

#ifndef RIVULET_COMMON_DAEMON_RUN_MEMBER_H_
#define RIVULET_COMMON_DAEMON_RUN_MEMBER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/checkpoint_store.h"
#include "common/daemon/config.h"
#include "common/daemon/session_client.h"
#include "common/daemon/stop_watcher.h"

namespace rivulet {

class RunMember {
 public:
  struct Options {
    v1::Role role = v1::ROLE_WORKER;  // ROLE_WORKER or ROLE_SHARD
    int index = 0;                    // the rank, or the shard
    std::string run_dir;              // checkpoints are kept under it
    bool resume = false;
    // Polled about every 50 ms from a thread of its own once joined. May be
    // null.
    std::function<bool()> stop_requested;
    // How to reach the controller; null: by gRPC, at cluster.controller.
    Connector<v1::DaemonMessage, v1::ControllerMessage> connect = nullptr;
  };

  RunMember(const Config& config, Options options);
  RunMember(const RunMember&) = delete;
  RunMember& operator=(const RunMember&) = delete;
  // Ends the session.
  ~RunMember();

  // "worker-3", "shard-0".
  const std::string& name() const { return name_; }

  // Makes the checkpoints' folder and lists this member's. AlreadyExists when
  // there are some and the run is not resumed.
  absl::Status FindCheckpoints();

  // Joins the run, after FindCheckpoints; `address` is where others dial, empty
  // for nowhere. From here on a wish to stop reaches the controller. Errors are
  // those of SessionClient::Join.
  absl::Status Join(const std::string& manifest_hash,
                    const std::string& address);
  SessionClient& session() const { return *session_; }

  // Of the run's config as everybody must have it.
  const std::string& config_hash() const { return config_hash_; }

  // What the run begins with, after Join: sets this member's checkpoints of
  // later steps aside. Not everybody has them, and the steps that are done
  // again may end in other bits, which must not be taken for one set with them.
  absl::Status BeginAt(int64_t step);
  // This member's state at `step`, after Join. NotFound, DataLoss, or
  // InvalidArgument naming what belongs to another run, with what was found and
  // expected; all name the file.
  absl::StatusOr<TensorFile> LoadCheckpoint(int64_t step);
  std::string PathOfCheckpoint(int64_t step) const;
  // Adds the identity to `state`'s metadata, writes it durably and removes what
  // nobody needs any more: the set under way is not complete yet, so the newest
  // checkpoint.keep before it stay as well.
  absl::Status SaveCheckpoint(int64_t step, TensorFile state);

  // Tells the controller how it went here and returns how the run went: `own`,
  // or the controller's reason where `own` is but its echo.
  absl::Status Conclude(const absl::Status& own);

 private:
  std::map<std::string, std::string> Identity(int64_t step) const;
  bool EndsWithin(absl::Duration timeout, absl::Status* verdict);

  const Config config_;
  const Options options_;
  const std::string name_;
  const std::string canonical_config_;
  const std::string config_hash_;
  std::string manifest_hash_;
  CheckpointStore store_;
  std::vector<CheckpointStore::Found> found_;  // at the start, newest first
  std::vector<std::string> damaged_;  // of FindCheckpoints, a line each
  std::deque<int64_t> saved_;         // kept, oldest first
  std::unique_ptr<SessionClient> session_;
  std::unique_ptr<StopWatcher> watcher_;  // uses the session: goes first
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_RUN_MEMBER_H_
