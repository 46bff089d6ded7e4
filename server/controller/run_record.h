// What is kept of a run in its folder, from one start to the next: its config,
// identity, schedule and totals. Whoever holds this conducts the run.
//
//   RV_ASSIGN_OR_RETURN(auto record, RunRecord::Create(config, dir, resume));
//   RV_RETURN_IF_ERROR(record->Write());
//   RunCoordinator coordinator(record->CoordinatorParts(&hub), absl::Now());

#ifndef RIVULET_SERVER_CONTROLLER_RUN_RECORD_H_
#define RIVULET_SERVER_CONTROLLER_RUN_RECORD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/config.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_plan.h"
#include "server/controller/run_coordinator.h"
#include "server/controller/schedule_log.h"

namespace rivulet {

// Thread-compatible.
class RunRecord {
 public:
  // Takes the run folder and reads what an earlier part of the run has left.
  // AlreadyExists when the folder is in use, has a run and `resume` is false,
  // or has a complete run; DataLoss for a damaged file in it; InvalidArgument
  // for a config that cannot run, or that is not the one of the folder's run,
  // with the keys that differ.
  static absl::StatusOr<std::unique_ptr<RunRecord>> Create(
      const Config& config, const std::string& run_dir, bool resume);

  // Writes config.yaml and the job's identity, and opens the schedule. Errors
  // name the file.
  absl::Status Write();

  const RunPlan& plan() const { return *plan_; }
  const RunPaths& paths() const { return folder_.paths(); }
  // After Write().
  const std::string& job() const { return job_; }
  // Counts the starts of the run, from 1.
  uint64_t generation() const;
  // What a coordinator of this part works with; borrows from this object.
  RunCoordinator::Parts CoordinatorParts(SessionStreams* hub);

 private:
  RunRecord(RunFolder folder, std::shared_ptr<const RunPlan> plan, bool resume);

  absl::Status TakeUp();
  absl::Status WriteFiles();

  RunFolder folder_;
  const std::shared_ptr<const RunPlan> plan_;
  const bool resume_;
  std::string job_;
  std::vector<std::string> notices_;  // for whoever watches the run
  RunTotals earlier_;
  bool earlier_unknown_ = false;
  bool keeps_config_ =
      false;  // a part before this one has written it, or may not
  std::unique_ptr<ScheduleLog> log_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_RUN_RECORD_H_
