// The files that the controller writes into a run folder beside the schedule:
// metrics.csv, summary.json, progress.json.

#ifndef RIVULET_SERVER_CONTROLLER_RUN_FILES_H_
#define RIVULET_SERVER_CONTROLLER_RUN_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/run_plan.h"
#include "server/controller/run_metrics.h"

namespace rivulet {

// The columns, and one row of them, without line ends. Numbers that are not
// known are empty.
std::string MetricsHeader();
std::string MetricsLine(const MetricsRow& row);

// metrics.csv, a line at a time. Thread-compatible.
class MetricsFile {
 public:
  // Begins the file anew; or, with `keep_until` > 0, keeps the rows of steps up
  // to it, which a resumed run does not repeat. Errors name the path.
  static absl::StatusOr<MetricsFile> Open(const std::string& path,
                                          int64_t keep_until);
  absl::Status Append(const MetricsRow& row);

 private:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// How a run ended, beyond what RunMetrics knows.
struct RunOutcome {
  std::string status;  // complete | stopped | failed
  std::string error;   // why, when failed; or the reason of a stop
  std::string job;
  std::string weights_sha256;  // empty without weights
};

// summary.json; common/daemon/README.md explains the keys.
std::string SummaryJson(const RunPlan& plan, const RunMetrics& metrics,
                        const RunOutcome& outcome);

// "complete", "stopped", "failed" of a summary's text; empty when it has none.
std::string StatusOfSummary(const std::string& json);

// progress.json: totals of the run so far, for a resumed run to go on from.
std::string ProgressJson(const RunTotals& totals);
// DataLoss names what is wrong; `path` is for messages.
absl::StatusOr<RunTotals> ParseProgressJson(const std::string& path,
                                            const std::string& json);

// "Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores".
std::string HostDescription();

// A whole text file. NotFound, or Unavailable with the reason, names the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_RUN_FILES_H_
