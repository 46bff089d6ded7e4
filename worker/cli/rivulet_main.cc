// The `rivulet` command: see `rivulet --help`.

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/nearest_name.h"
#include "common/daemon/command_line.h"
#include "common/daemon/exit_codes.h"
#include "common/daemon/version.h"
#include "worker/cli/commands.h"

namespace {

// What is further from a command's name was meant as something else.
constexpr size_t kTypos = 2;

// CLI11 would only say that some command is missing.
absl::Status CheckCommand(const CLI::App& app, const std::string& name) {
  if (absl::StartsWith(name, "-")) return absl::OkStatus();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == name) return absl::OkStatus();
    names.push_back(command->get_name());
  }
  const std::string nearest = rivulet::NearestName(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      name.empty() ? "found no command"
                   : absl::StrCat("found the command ", name),
      rivulet::EditDistance(name, nearest) <= kTypos
          ? absl::StrCat(" (did you mean ", nearest, "?)")
          : "",
      "; allowed: ", absl::StrJoin(names, ", "), " (--help says more)"));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Rivulet trains deep networks over thin links: parameter servers and "
      "workers that exchange compressed gradients.");
  app.set_version_flag("--version", rivulet::kVersion);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  rivulet train configs/quickstart.yaml\n"
      "  rivulet lab configs/lab/momentum_rates.yaml --list\n"
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
  rivulet::AddLabCommand(&app, argv[0], &run);
  rivulet::AddEvalCommand(&app, &run);
  rivulet::AddCheckCommand(&app, &run);
  rivulet::AddInspectCommand(&app, &run);
  rivulet::AddBenchCommand(&app, &run);
  const absl::Status known = CheckCommand(app, argc > 1 ? argv[1] : "");
  if (!known.ok()) return rivulet::ReportEnd("rivulet", known);
  if (const auto end = rivulet::ParseCommandLine(&app, "rivulet", argc, argv)) {
    return *end;
  }
  return rivulet::ReportEnd("rivulet", run());
}
