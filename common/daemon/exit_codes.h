// Exit codes of every Rivulet program, so that scripts and orchestrators can
// tell a mistake from bad luck. README.md repeats the table.

#ifndef RIVULET_COMMON_DAEMON_EXIT_CODES_H_
#define RIVULET_COMMON_DAEMON_EXIT_CODES_H_

#include "absl/status/status.h"

namespace rivulet {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,      // training failed; a retry may help
  kExitUsage = 2,        // command line or config: a retry cannot help
  kExitData = 3,         // data set, checkpoint or weights missing or damaged
  kExitUnavailable = 4,  // a peer did not come or went away; a retry may help
  kExitRunFolder = 5,    // run folder unreadable, in use, or already has a run
  kExitInterrupted = 130,
};

// kExitOk for OK; InvalidArgument -> kExitUsage; NotFound, DataLoss ->
// kExitData; Unavailable, DeadlineExceeded -> kExitUnavailable; AlreadyExists,
// PermissionDenied -> kExitRunFolder; Cancelled -> kExitInterrupted; others ->
// kExitFailure.
int ExitCodeFor(const absl::Status& status);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_EXIT_CODES_H_
