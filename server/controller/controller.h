// The controller daemon: holds the run folder, listens, and sees one run from
// the first join to its end.
//
//   auto controller = *Controller::Create(config, dir, /*resume=*/false);
//   std::string address = *controller->Start();
//   absl::Status result = controller->Run();  // blocks

#ifndef RIVULET_SERVER_CONTROLLER_CONTROLLER_H_
#define RIVULET_SERVER_CONTROLLER_CONTROLLER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/sync.h"
#include "common/daemon/config.h"
#include "server/controller/run_coordinator.h"
#include "server/controller/run_record.h"
#include "server/listen.h"

namespace rivulet {

class ControllerService;

// Create, Start and Run are for one thread; RequestStop is for any.
class Controller {
 public:
  // Takes the run folder and reads what an earlier part of the run has left.
  // AlreadyExists when the folder is in use, has a run and `resume` is false,
  // or has a complete run; DataLoss for a damaged file in it; InvalidArgument
  // for a config that cannot run, or that is not the one of the folder's run,
  // with the keys that differ.
  static absl::StatusOr<std::unique_ptr<Controller>> Create(
      const Config& config, const std::string& run_dir, bool resume);

  ~Controller();  // Shutdown()

  // Listens on cluster.controller, then writes config.yaml and the job's
  // identity into the folder, and returns the address with the port that was
  // bound. Errors are those of Listen(), or name the file.
  absl::StatusOr<std::string> Start();

  // Sees the run to its end: OK when it is complete, Cancelled when it was
  // stopped, with a checkpoint or before it began, else the reason.
  // Start() first. The server is down when it returns.
  absl::Status Run();

  // Checkpoints and stops the run at its next boundary. Thread-safe; the first
  // reason counts.
  void RequestStop(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit Controller(std::unique_ptr<RunRecord> record);

  void Loop(RunCoordinator* coordinator);
  void Shutdown();

  const std::unique_ptr<RunRecord> record_;
  std::unique_ptr<ControllerService> service_;  // outlives the server
  Listener listener_;

  Mutex mu_;
  std::optional<std::string> stop_reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_CONTROLLER_H_
