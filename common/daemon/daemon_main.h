// The main function of a daemon: command line, config, signals, exit code.
//
//   int main(int argc, char** argv) {
//     return rivulet::DaemonMain(argc, argv, {.program = "rivulet-server",
//     ...});
//   }

#ifndef RIVULET_COMMON_DAEMON_DAEMON_MAIN_H_
#define RIVULET_COMMON_DAEMON_DAEMON_MAIN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/daemon/config.h"

namespace rivulet {

struct DaemonArguments {
  int index = 0;        // rank or shard
  std::string run_dir;  // never empty
  bool resume = false;
  int ready_fd = -1;  // where to write the address that it listens on, or -1
};

struct DaemonProgram {
  std::string program;      // "rivulet-server"
  std::string description;  // for --help
  std::string examples;     // for --help: lines, then what Ctrl-C does
  // Which of several it is; no option where `index_option` is empty.
  std::string index_option;  // "--shard"
  std::string index_help;
  int index_max = 0;
  bool writes_ready_fd = false;
  std::function<absl::Status(const Config&, const DaemonArguments&)> run;
};

// Parses, loads the config, ends with the parent if --parent-fd says so, runs,
// and says why it ends, in one line. Returns the exit code (exit_codes.h).
int DaemonMain(int argc, char** argv, const DaemonProgram& daemon);

// Logs to the run folder's logs/<process>.log and to stderr from here on. Makes
// the folder.
absl::Status LogToRunFolder(const Config& config, const std::string& run_dir,
                            const std::string& process);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_DAEMON_MAIN_H_
