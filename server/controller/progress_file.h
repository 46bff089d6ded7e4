// progress.json: what a resumed run goes on counting from.

#ifndef RIVULET_SERVER_CONTROLLER_PROGRESS_FILE_H_
#define RIVULET_SERVER_CONTROLLER_PROGRESS_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/controller/run_metrics.h"

namespace rivulet {

std::string ProgressJson(const RunTotals& totals);
// DataLoss names what is wrong; `path` is for messages.
absl::StatusOr<RunTotals> ParseProgressJson(const std::string& path,
                                            const std::string& text);

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_PROGRESS_FILE_H_
