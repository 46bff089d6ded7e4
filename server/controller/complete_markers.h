// Markers of complete checkpoint sets: checkpoints/step-0000001234/COMPLETE in
// the controller's run folder, written once every member has saved that step.
// Recovery itself asks the members; the markers tell whether there was anything
// to recover, and people what there is.

#ifndef RIVULET_SERVER_CONTROLLER_COMPLETE_MARKERS_H_
#define RIVULET_SERVER_CONTROLLER_COMPLETE_MARKERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/run_folder.h"

namespace rivulet {

// Writes the marker of `step` and removes those of all but the `keep` newest
// sets, and their folders where nothing else is in them. Errors name the path.
absl::Status MarkCheckpointComplete(const RunPaths& paths, int64_t step,
                                    const std::string& job, int64_t keep);

// Whether some set of this run has ever become complete. Unavailable names the
// folder where it cannot be read.
absl::StatusOr<bool> HasCompleteCheckpoint(const RunPaths& paths);

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_COMPLETE_MARKERS_H_
