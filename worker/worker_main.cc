// rivulet-worker: one worker of a run. See --help.

#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/child_process.h"
#include "common/daemon/config.h"
#include "common/daemon/exit_codes.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/version.h"
#include "worker/worker_daemon.h"

namespace rivulet {
namespace {

struct Arguments {
  std::string config;
  int rank = 0;
  std::string run_dir;
  std::vector<std::string> overrides;
  bool resume = false;
  int parent_fd = -1;
};

absl::Status Main(const Arguments& arguments) {
  HandleStopSignals();
  if (arguments.parent_fd >= 0) {
    RV_RETURN_IF_ERROR(ExitWhenClosed(arguments.parent_fd));
  }
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(arguments.config, arguments.overrides));
  WorkerOptions options;
  options.rank = arguments.rank;
  options.resume = arguments.resume;
  options.run_dir = arguments.run_dir;
  if (options.run_dir.empty()) options.run_dir = config.local.run_dir;
  if (options.run_dir.empty()) {
    options.run_dir = absl::StrCat("runs/", config.name);
  }
  options.stop_requested = StopSignalled;
  const RunPaths paths(options.run_dir);
  RV_RETURN_IF_ERROR(MakeFolders(paths.logs()));
  const std::string process = absl::StrCat("worker-", options.rank);
  RV_RETURN_IF_ERROR(InitLogging({.process = process,
                                  .level = config.local.log_level,
                                  .file = paths.Log(process)}));
  return RunWorker(config, options);
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  rivulet::Arguments arguments;
  CLI::App app(
      "One worker of a run: computes gradients on its part of each batch and "
      "exchanges them with the shards. Started by `rivulet train`, or by hand "
      "on each machine with the same config.");
  app.set_version_flag("--version", rivulet::kVersion);
  app.add_option("--config", arguments.config, "The run's YAML file")
      ->required();
  app.add_option("--rank", arguments.rank,
                 "Which worker this is, 0 to cluster.workers - 1")
      ->required()
      ->check(CLI::Range(0, 1023));
  app.add_option("--run-dir", arguments.run_dir,
                 "Folder for checkpoints and logs [local.run_dir, or "
                 "runs/<name>]");
  app.add_option("--set", arguments.overrides,
                 "Override a key of the config: key.path=value (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  app.add_flag("--resume", arguments.resume,
               "Go on from the newest checkpoint that everybody has");
  app.add_option("--parent-fd", arguments.parent_fd)->group("");
  app.footer(
      "Examples:\n"
      "  rivulet-worker --config run.yaml --rank 0\n"
      "  rivulet-worker --config run.yaml --rank 1 --set "
      "cluster.controller=10.0.0.5:7070 --set data.path=/data/cifar10\n"
      "  rivulet-worker --config run.yaml --rank 0 --run-dir /data/run1 "
      "--resume\n"
      "Ctrl-C asks the controller to checkpoint and stop the run; a second one "
      "ends this process at once.\n"
      "Exit codes: 0 done, 1 training failed, 2 usage or config, 3 data, 4 a "
      "peer went away, 5 run folder, 130 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? rivulet::kExitOk : rivulet::kExitUsage;
  }
  const absl::Status status = rivulet::Main(arguments);
  if (!status.ok()) {
    std::cerr << "rivulet-worker: error: " << status.message() << "\n";
  }
  return rivulet::ExitCodeFor(status);
}
