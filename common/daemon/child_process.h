// What a daemon needs to be a well-behaved process: to end with the process
// that started it, and to turn signals into a flag.

#ifndef RIVULET_COMMON_DAEMON_CHILD_PROCESS_H_
#define RIVULET_COMMON_DAEMON_CHILD_PROCESS_H_

#include <string>

#include "absl/status/status.h"

namespace rivulet {

// Starts a thread that ends this process (exit code kExitInterrupted, at once)
// when the pipe `fd` reaches its end: that is when the parent, which holds the
// other end, is gone. Takes `fd` over. InvalidArgument when it is not open.
absl::Status ExitWhenClosed(int fd);

// Calls `handler` for each signal that asks a process to stop: SIGINT, SIGTERM,
// and SIGHUP unless it is ignored, as under nohup.
void CatchStopSignals(void (*handler)(int));

// SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) raise a flag; a
// second SIGINT ends the process at once with kExitInterrupted. SIGPIPE is
// ignored. Call once, before threads are started.
void HandleStopSignals();

// Whether such a signal has come. Async-signal-safe and thread-safe.
bool StopSignalled();

// Writes `text` to `fd` and closes it: tells the process that started this one
// what it waits for. Errors name errno.
absl::Status WriteAndClose(int fd, const std::string& text);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CHILD_PROCESS_H_
