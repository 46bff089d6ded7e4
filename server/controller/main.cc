// rivulet-controller: sees one run from the first join to its end. See --help.

#include <iostream>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/child_process.h"
#include "common/daemon/config.h"
#include "common/daemon/exit_codes.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/version.h"
#include "server/controller/controller.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);

struct Arguments {
  std::string config;
  std::string run_dir;
  std::vector<std::string> overrides;
  bool resume = false;
  int parent_fd = -1;
  int ready_fd = -1;
};

// Runs the controller while a second thread turns a signal into a request.
absl::Status RunStoppable(Controller& controller) {
  Notification done;
  std::thread watcher([&] {
    while (!done.WaitForNotificationWithTimeout(kPoll)) {
      if (StopSignalled()) {
        controller.RequestStop("the controller was told to stop");
        return;
      }
    }
  });
  absl::Status status = controller.Run();
  done.Notify();
  watcher.join();
  return status;
}

absl::Status Main(const Arguments& arguments) {
  HandleStopSignals();
  if (arguments.parent_fd >= 0) {
    RV_RETURN_IF_ERROR(ExitWhenClosed(arguments.parent_fd));
  }
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(arguments.config, arguments.overrides));
  const std::string run_dir =
      arguments.run_dir.empty() ? config.local.run_dir : arguments.run_dir;
  RV_ASSIGN_OR_RETURN(const std::unique_ptr<Controller> controller,
                      Controller::Create(config, run_dir, arguments.resume));
  // After Create: a folder that belongs to another run gets no log of this one.
  RV_RETURN_IF_ERROR(
      InitLogging({.process = "controller",
                   .level = config.local.log_level,
                   .file = RunPaths(run_dir).Log("controller")}));
  RV_ASSIGN_OR_RETURN(const std::string address, controller->Start());
  if (arguments.ready_fd >= 0) {
    RV_RETURN_IF_ERROR(WriteAndClose(arguments.ready_fd, address + "\n"));
  }
  return RunStoppable(*controller);
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  rivulet::Arguments arguments;
  CLI::App app(
      "The controller of a run: waits for shards and workers, keeps the run's "
      "folder, and writes metrics, weights and the summary. Started by "
      "`rivulet "
      "train`, or by hand with the same config as everybody else.");
  app.set_version_flag("--version", rivulet::kVersion);
  app.add_option("--config", arguments.config, "The run's YAML file")
      ->required();
  app.add_option("--run-dir", arguments.run_dir,
                 "The run's folder [local.run_dir, or runs/<name>]");
  app.add_option("--set", arguments.overrides,
                 "Override a key of the config: key.path=value (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  app.add_flag("--resume", arguments.resume,
               "Go on from the newest checkpoint that everybody has");
  app.add_option("--parent-fd", arguments.parent_fd)->group("");
  app.add_option("--ready-fd", arguments.ready_fd)->group("");
  app.footer(
      "Examples:\n"
      "  rivulet-controller --config run.yaml\n"
      "  rivulet-controller --config run.yaml --set "
      "cluster.controller=0.0.0.0:7070 --run-dir /data/run1\n"
      "  rivulet-controller --config run.yaml --run-dir /data/run1 --resume\n"
      "It listens on cluster.controller. Ctrl-C checkpoints and stops the run; "
      "a "
      "second one ends this process at once.\n"
      "Exit codes: 0 done, 1 training failed, 2 usage or config, 3 data, 4 a "
      "peer went away, 5 run folder, 130 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? rivulet::kExitOk : rivulet::kExitUsage;
  }
  const absl::Status status = rivulet::Main(arguments);
  if (!status.ok()) {
    std::cerr << "rivulet-controller: error: " << status.message() << "\n";
  }
  return rivulet::ExitCodeFor(status);
}
