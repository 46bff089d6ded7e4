// The life of one run as the controller sees it: joining, start, schedule,
// leases, reports, and the end (proto/README.md). All decisions of the
// controller are here; what knows gRPC is the hub.
//
//   waiting -> training -> finishing -> ended, or from anywhere to ended
//
// One thread owns it and gives it one event at a time; time comes in as an
// argument.

#ifndef RIVULET_SERVER_CONTROLLER_RUN_COORDINATOR_H_
#define RIVULET_SERVER_CONTROLLER_RUN_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_plan.h"
#include "proto/controller.pb.h"
#include "server/controller/checkpoint_tracker.h"
#include "server/controller/membership.h"
#include "server/controller/metrics_file.h"
#include "server/controller/run_metrics.h"
#include "server/controller/schedule_log.h"
#include "server/controller/summary.h"
#include "server/controller/weights_assembler.h"
#include "server/stream_hub.h"

namespace rivulet {

using SessionHub = StreamHub<v1::DaemonMessage, v1::ControllerMessage>;
using SessionStreams = MessageHub<v1::DaemonMessage, v1::ControllerMessage>;

class RunCoordinator {
 public:
  struct Parts {
    std::shared_ptr<const RunPlan> plan;
    RunPaths paths;
    std::string job;
    uint64_t generation = 1;
    RunTotals earlier;  // of a resumed run
    // What is before the step that this part begins at was not kept: traffic
    // and what dense training would take both count from there.
    bool earlier_unknown = false;
    // What watchers are told of its beginning, a line each.
    std::vector<std::string> notices;
    SessionStreams* hub = nullptr;  // borrowed
    ScheduleLog* log = nullptr;     // borrowed
    // Silence after which a member counts as lost; nothing: cluster.lease.
    std::optional<absl::Duration> lease = std::nullopt;
  };

  // Waits for daemons from `now` on.
  RunCoordinator(Parts parts, absl::Time now);

  void Handle(SessionStreams::Event event, absl::Time now);
  // A member has done `step` steps: what its next heartbeat would say.
  void SetStep(int64_t step);
  // Deadlines, leases, checkpoints, metrics. Call every 50 ms or so, after the
  // events that have come.
  void Tick(absl::Time now);
  // Checkpoint and stop at the next boundary; before the start, at once.
  void Stop(const std::string& reason);
  // Ends the run for everybody with this reason.
  void Fail(const absl::Status& status);

  bool ended() const { return phase_ == Phase::kEnded; }
  // OK after the last step; Cancelled when stopped, with a checkpoint or before
  // the start; the reason otherwise. Call when ended.
  const absl::Status& result() const { return result_; }

  v1::RunStatus Status(absl::Time now) const;

 private:
  enum class Phase { kWaiting, kTraining, kFinishing, kEnded };

  void HandleHello(StreamId stream, const v1::DaemonMessage& message,
                   absl::Time now);
  void HandleMember(const MemberKey& key, const v1::DaemonMessage& message);
  void HandleFinished(const MemberKey& key, const v1::Finished& finished);
  void HandleSaved(const MemberKey& key, int64_t step);
  void HandleLeft(StreamId stream);

  // Takes over what a member's user should know.
  void AddNotes(const MemberKey& key, const v1::Hello& hello);
  // Where everybody begins: at the newest common checkpoint.
  absl::StatusOr<int64_t> FirstStep() const;
  absl::Status WriteMissingConfig() const;
  void Begin(absl::Time now);
  void TickWaiting(absl::Time now);
  void TickRunning(absl::Time now);
  absl::Status AppendAndSend(v1::ScheduleEntry entry);
  void Conclude();
  absl::Status WriteWeights(std::string* sha256);
  // Last row, totals and summary.
  absl::Status WriteEnd(const RunOutcome& outcome);
  absl::Status WriteMetricsRow();
  absl::Status MarkComplete(int64_t step);
  void End(const absl::Status& result, v1::RunStatus::Phase phase);
  // The end, as members are told it. Call when ended.
  std::shared_ptr<const v1::ControllerMessage> FinishMessage() const;
  std::shared_ptr<const v1::ControllerMessage> LateWelcome(
      const v1::Hello& hello) const;
  void Send(StreamId stream, const v1::ControllerMessage& message);

  const Parts parts_;
  const Config& config_;
  Membership membership_;
  Phase phase_ = Phase::kWaiting;
  v1::RunStatus::Phase ended_as_ = v1::RunStatus::FAILED;
  absl::Status result_;

  std::vector<std::string> notices_;
  const absl::Time waiting_since_;
  absl::Time last_tick_;
  absl::Time said_missing_ = absl::InfinitePast();

  // From Begin on.
  absl::Time began_;
  int64_t first_step_ = 0;
  absl::Time last_row_;
  std::optional<CheckpointTracker> checkpoints_;
  std::optional<RunMetrics> metrics_;
  std::optional<MetricsFile> metrics_file_;
  WeightsAssembler weights_;
  std::string stop_reason_;  // of a StopMark that is in the log
  bool stopping_ = false;
  bool all_complete_ = true;  // no Finished said that it stopped early

  int64_t shard_bytes_up_ = 0;  // sessions of shards
  int64_t shard_bytes_down_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_RUN_COORDINATOR_H_
