// Logging: spdlog, one event a line, with the process's identity in each.
//
//   InitLogging({.process = "worker-0", .file = paths.Log("worker-0")});
//   spdlog::info("joined {} as incarnation {}", address, incarnation);
//
// Never log payloads. Call spdlog's functions directly after InitLogging.

#ifndef RIVULET_COMMON_DAEMON_LOGGING_H_
#define RIVULET_COMMON_DAEMON_LOGGING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rivulet {

struct LoggingOptions {
  std::string process;         // "worker-0", "shard-1", "controller", "rivulet"
  std::string level = "info";  // debug | info | warning | error
  std::string file = "";       // empty: standard error only
  bool stderr_too = true;
};

// Once a process, before threads are started.
absl::Status InitLogging(const LoggingOptions& options);

// What each line says from here on, between process and message:
// "1f3a9c02/4294967297 step 120" for the job's first eight digits, the
// incarnation of this member, and the steps done. Thread-safe.
void SetLogIdentity(const std::string& job, uint64_t incarnation);
void SetLogStep(int64_t step);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_LOGGING_H_
