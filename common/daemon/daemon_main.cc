#include "common/daemon/daemon_main.h"

#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "common/daemon/child_process.h"
#include "common/daemon/command_line.h"
#include "common/daemon/exit_codes.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/version.h"

namespace rivulet {
namespace {

struct Invocation {
  std::string config;
  std::vector<std::string> overrides;
  int parent_fd = -1;
  DaemonArguments arguments;
};

absl::Status Run(const DaemonProgram& daemon, Invocation invocation) {
  HandleStopSignals();
  if (invocation.parent_fd >= 0) {
    RV_RETURN_IF_ERROR(ExitWhenClosed(invocation.parent_fd));
  }
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(invocation.config, invocation.overrides));
  DaemonArguments& arguments = invocation.arguments;
  if (arguments.run_dir.empty()) arguments.run_dir = config.local.run_dir;
  return daemon.run(config, arguments);
}

}  // namespace

int DaemonMain(int argc, char** argv, const DaemonProgram& daemon) {
  Invocation invocation;
  DaemonArguments& arguments = invocation.arguments;
  CLI::App app(daemon.description);
  app.set_version_flag("--version", kVersion);
  app.add_option("--config", invocation.config, "The run's YAML file")
      ->required();
  if (!daemon.index_option.empty()) {
    app.add_option(daemon.index_option, arguments.index, daemon.index_help)
        ->required()
        ->check(CLI::Range(0, daemon.index_max));
  }
  app.add_option("--run-dir", arguments.run_dir,
                 "Folder for checkpoints and logs [local.run_dir, or "
                 "runs/<name>]");
  app.add_option("--set", invocation.overrides,
                 "Override a key of the config: key.path=value (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  app.add_flag("--resume", arguments.resume,
               "Go on from the newest checkpoint that everybody has");
  // For the program that starts this one.
  app.add_option("--parent-fd", invocation.parent_fd)->group("");
  if (daemon.writes_ready_fd) {
    app.add_option("--ready-fd", arguments.ready_fd)->group("");
  }
  app.footer("Examples:\n" + daemon.examples +
             "A second Ctrl-C ends this process at once.\n" + kExitCodesHelp);
  if (const auto end = ParseCommandLine(&app, daemon.program, argc, argv)) {
    return *end;
  }
  return ReportEnd(daemon.program, Run(daemon, std::move(invocation)));
}

absl::Status LogToRunFolder(const Config& config, const std::string& run_dir,
                            const std::string& process) {
  const RunPaths paths(run_dir);
  RV_RETURN_IF_ERROR(MakeFolders(paths.logs()));
  return InitLogging({.process = process,
                      .level = config.local.log_level,
                      .file = paths.Log(process)});
}

}  // namespace rivulet
