// The CSV of an experiment: a header, and a line for each run that has
// finished. Lines are appended whole, one write each, under a lock, so several
// processes may fill one file, and a killed one leaves no half a line behind.

#ifndef RIVULET_WORKER_LAB_RESULTS_FILE_H_
#define RIVULET_WORKER_LAB_RESULTS_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// What names a line: no two have the same.
struct RunKey {
  std::string arm;
  std::vector<std::string> grid;  // a value for each of the grid's keys
  int64_t seed = 1;
  friend auto operator<=>(const RunKey&, const RunKey&) = default;
};

// The line of a complete run, from the text of its summary.json; no line end.
// DataLoss for a summary without what belongs into it.
absl::StatusOr<std::string> ResultsLine(const RunKey& key,
                                        const std::string& settings,
                                        const std::string& summary_json);
std::string ResultsHeader(const std::vector<std::string>& grid_keys);

// A line's fields; quotes as RFC 4180 has them.
std::vector<std::string> SplitCsvLine(absl::string_view line);

// Thread-compatible.
class ResultsFile {
 public:
  // Reads what is there; a missing or empty file is one without lines.
  // InvalidArgument names the file when its header is not that of these keys,
  // or a line does not fit it.
  static absl::StatusOr<ResultsFile> Open(
      const std::string& path, const std::vector<std::string>& grid_keys);

  // The settings of the run's line, or null when it has none.
  const std::string* FindSettings(const RunKey& key) const;

  // Appends a line that ResultsLine made, durably; makes the file, and folders
  // above it, where they are missing. Errors name the path.
  absl::Status Append(const RunKey& key, const std::string& settings,
                      const std::string& line);

 private:
  ResultsFile(std::string path, std::string header)
      : path_(std::move(path)), header_(std::move(header)) {}

  std::string path_;
  std::string header_;
  std::map<RunKey, std::string> settings_;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_LAB_RESULTS_FILE_H_
