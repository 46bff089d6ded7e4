// metrics.csv: a line a report interval.

#ifndef RIVULET_SERVER_CONTROLLER_METRICS_FILE_H_
#define RIVULET_SERVER_CONTROLLER_METRICS_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_METRICS_FILE_H_
