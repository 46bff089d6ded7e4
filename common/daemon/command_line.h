// How every program here reads its command line.

#ifndef RIVULET_COMMON_DAEMON_COMMAND_LINE_H_
#define RIVULET_COMMON_DAEMON_COMMAND_LINE_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"

namespace rivulet {

// Parses, or says what is wrong in one line that begins with
// "<program>: error: ". The exit code when the program is to end here: after an
// error, --help or --version.
std::optional<int> ParseCommandLine(CLI::App* app, const std::string& program,
                                    int argc, const char* const* argv);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_COMMAND_LINE_H_
