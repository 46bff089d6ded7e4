// The `rivulet` command: see `rivulet --help`.

#include <filesystem>
#include <string>
#include <system_error>

#include "CLI/CLI.hpp"
#include "common/daemon/exit_codes.h"
#include "common/daemon/version.h"
#include "worker/cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Rivulet trains deep networks over thin links: parameter servers and "
      "workers that exchange compressed gradients.");
  app.set_version_flag("--version", rivulet::kVersion);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  rivulet train configs/quickstart.yaml\n"
      "  rivulet eval runs/quickstart\n"
      "  rivulet check configs/cifar10_resnet20.yaml\n"
      "Each command has its own --help. " +
      std::string(rivulet::kExitCodesHelp));

  // The daemons are found beside this program, however it was called.
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = error ? argv[0] : self.string();

  rivulet::Command run;
  rivulet::AddTrainCommand(&app, program, argv[0], &run);
  rivulet::AddEvalCommand(&app, &run);
  rivulet::AddCheckCommand(&app, &run);
  rivulet::AddBenchCommand(&app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? rivulet::kExitOk : rivulet::kExitUsage;
  }

  return rivulet::ReportEnd("rivulet", run());
}
