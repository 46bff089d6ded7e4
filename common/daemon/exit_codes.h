// Exit codes of every Rivulet program, so that scripts and orchestrators can
// tell a mistake from bad luck. README.md repeats the table.

#ifndef RIVULET_COMMON_DAEMON_EXIT_CODES_H_
#define RIVULET_COMMON_DAEMON_EXIT_CODES_H_

#include <string>

#include "absl/status/status.h"

namespace rivulet {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,  // training failed; a retry may help
  kExitUsage = 2,    // command line or config: a retry cannot help
  kExitData = 3,     // data set, checkpoint or weights missing or damaged
  // A peer did not come or went away, or a port is in use; a retry may help.
  kExitUnavailable = 4,
  kExitRunFolder = 5,  // run folder unreadable, in use, or already has a run
  kExitInterrupted = 130,  // stopped or interrupted before its end
};

// For --help.
inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 done, 1 training failed, 2 usage or config, 3 data, 4 a "
    "peer went away or a port is busy, 5 run folder, 130 stopped or "
    "interrupted before its end.";

// kExitOk for OK; InvalidArgument -> kExitUsage; NotFound, DataLoss ->
// kExitData; Unavailable, DeadlineExceeded -> kExitUnavailable; AlreadyExists,
// PermissionDenied -> kExitRunFolder; Cancelled -> kExitInterrupted; others ->
// kExitFailure.
int ExitCodeFor(const absl::Status& status);

// A status code that ExitCodeFor turns into `exit_code`: what another program's
// end means. Internal for a code that is none of ExitCode.
absl::StatusCode StatusCodeOfExit(int exit_code);

// What main() does last: says on stderr why the program ends, in one line, and
// returns the exit code. An end that somebody asked for is not called an error.
int ReportEnd(const std::string& program, const absl::Status& status);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_EXIT_CODES_H_
