// The subcommands of `rivulet`. Each adds itself to the command line; the one
// that was chosen leaves its work in `run`, which returns the result.

#ifndef RIVULET_WORKER_CLI_COMMANDS_H_
#define RIVULET_WORKER_CLI_COMMANDS_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace rivulet {

// What a command does once the arguments are parsed.
using Command = std::function<absl::Status()>;

// The daemons are beside `program`; `called_as` is what the user calls it.
void AddTrainCommand(CLI::App* app, const std::string& program,
                     const std::string& called_as, Command* run);
void AddLabCommand(CLI::App* app, const std::string& called_as, Command* run);
void AddEvalCommand(CLI::App* app, Command* run);
void AddCheckCommand(CLI::App* app, Command* run);
void AddInspectCommand(CLI::App* app, Command* run);
void AddBenchCommand(CLI::App* app, Command* run);
// Below `bench`.
void AddBenchCompressionCommand(CLI::App* bench, Command* run);

}  // namespace rivulet

#endif  // RIVULET_WORKER_CLI_COMMANDS_H_
