// What `rivulet train` shows while it runs and when it has ended: one line that
// is redrawn on a terminal, plain lines elsewhere.

#ifndef RIVULET_WORKER_CLI_PROGRESS_H_
#define RIVULET_WORKER_CLI_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/controller.pb.h"

namespace rivulet {

// "1.2 kB", "34.5 MB": decimal units, three significant digits.
std::string HumanBytes(double bytes);
// "0:07", "12:34", "1:02:03".
std::string HumanDuration(double seconds);

// The line for one status.
std::string ProgressLine(const v1::RunStatus& status);

// Where a run that was started with --resume begins: "resuming from step 40 of
// 100".
std::string ResumeLine(const v1::RunStatus& status);

// A command that a shell takes apart into these words again.
std::string ShellCommand(const std::vector<std::string>& words);

// The closing lines: accuracy, traffic against dense, where the files are, and,
// for a run that was stopped, the command that goes on. `summary_json` is the
// text of RUN/summary.json.
absl::StatusOr<std::string> ClosingLines(const std::string& summary_json,
                                         const std::string& run_dir,
                                         const std::string& resume_command);

// What goes on with a run of `config` after a stop: `rivulet COMMAND` as it was
// called, with --resume.
std::string ResumeCommand(const std::string& called_as,
                          const std::string& command, const std::string& config,
                          const std::string& run_dir,
                          const std::vector<std::string>& overrides);

// Prints the closing lines of a run that ended with `result`, OK or Cancelled,
// and returns that. Prints nothing where the run's summary is still
// `earlier_summary`: it was stopped before this part had begun, or at once.
absl::Status PrintClosing(const absl::Status& result,
                          const std::string& run_dir,
                          const std::string& earlier_summary,
                          const std::string& resume_command);

// Thread-compatible.
class ProgressPrinter {
 public:
  // Writes to `out`. On a terminal the line is redrawn in place; elsewhere a
  // line appears every `plain_interval`, at each evaluation and at each change
  // of phase. Of a run that was started with --resume it first says where it
  // begins. `prefix` comes before each line.
  ProgressPrinter(std::FILE* out, bool terminal, absl::Duration plain_interval,
                  bool resume, std::string prefix = "");

  // Notices are shown once each. Who is missing while daemons join is said only
  // once that takes long; how the run ended is for the caller to say.
  void Show(const v1::RunStatus& status, absl::Time now);
  // A line of its own, above the progress line.
  void Say(const std::string& line);
  // Leaves the cursor on a fresh line.
  void Finish();

 private:
  std::FILE* const out_;
  const bool terminal_;
  const absl::Duration plain_interval_;
  bool say_where_;  // it begins
  const std::string prefix_;
  size_t drawn_ = 0;  // characters of the line on the terminal
  absl::Time first_ = absl::InfiniteFuture();  // when Show was first called
  absl::Time last_ = absl::InfinitePast();
  v1::RunStatus::Phase phase_ = v1::RunStatus::PHASE_UNSPECIFIED;
  std::string message_;
  uint64_t evaluations_ = 0;
  int notices_ = 0;  // shown so far
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_CLI_PROGRESS_H_
