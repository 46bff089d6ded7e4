// rivulet-server: one shard of a run. See --help.

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
#include "server/shard_daemon.h"

namespace rivulet {
namespace {

struct Arguments {
  std::string config;
  int shard = 0;
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
  ShardOptions options;
  options.shard = arguments.shard;
  options.resume = arguments.resume;
  options.run_dir =
      arguments.run_dir.empty() ? config.local.run_dir : arguments.run_dir;
  options.stop_requested = StopSignalled;
  const RunPaths paths(options.run_dir);
  RV_RETURN_IF_ERROR(MakeFolders(paths.logs()));
  const std::string process = absl::StrCat("shard-", options.shard);
  RV_RETURN_IF_ERROR(InitLogging({.process = process,
                                  .level = config.local.log_level,
                                  .file = paths.Log(process)}));
  return RunShard(config, options);
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  rivulet::Arguments arguments;
  CLI::App app(
      "One shard of a run: owns a part of the weights, adds the workers' "
      "gradients and sends back what changed. Started by `rivulet train`, or "
      "by "
      "hand with the same config as everybody else.");
  app.set_version_flag("--version", rivulet::kVersion);
  app.add_option("--config", arguments.config, "The run's YAML file")
      ->required();
  app.add_option("--shard", arguments.shard,
                 "Which shard this is, 0 to cluster.shards - 1")
      ->required()
      ->check(CLI::Range(0, 255));
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
      "  rivulet-server --config run.yaml --shard 0\n"
      "  rivulet-server --config run.yaml --shard 1 --set "
      "local.listen=10.0.0.6:7071 --set cluster.controller=10.0.0.5:7070\n"
      "  rivulet-server --config run.yaml --shard 0 --run-dir /data/run1 "
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
    std::cerr << "rivulet-server: error: " << status.message() << "\n";
  }
  return rivulet::ExitCodeFor(status);
}
