#include "server/controller/complete_markers.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/checkpoint_store.h"
#include "models/checkpoint/atomic_file.h"

namespace rivulet {
namespace {

namespace fs = std::filesystem;

constexpr char kMarker[] = "COMPLETE";

// The step folders that have a marker.
absl::StatusOr<std::vector<fs::path>> CompleteFolders(const RunPaths& paths) {
  std::vector<fs::path> complete;
  std::error_code error;
  for (fs::directory_iterator it(paths.checkpoints(), error), end;
       !error && it != end; it.increment(error)) {
    if (fs::exists(it->path() / kMarker, error)) complete.push_back(it->path());
  }
  if (error == std::errc::no_such_file_or_directory) return complete;
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(paths.checkpoints(), ": ", error.message()));
  }
  return complete;
}

}  // namespace

absl::StatusOr<bool> HasCompleteCheckpoint(const RunPaths& paths) {
  RV_ASSIGN_OR_RETURN(const std::vector<fs::path> complete,
                      CompleteFolders(paths));
  return !complete.empty();
}

absl::Status MarkCheckpointComplete(const RunPaths& paths, int64_t step,
                                    const std::string& job, int64_t keep) {
  const fs::path folder =
      fs::path(CheckpointStore(paths.checkpoints(), kMarker).PathOf(step))
          .parent_path();
  RV_RETURN_IF_ERROR(MakeFolders(folder.string()));
  RV_RETURN_IF_ERROR(WriteFileAtomically((folder / kMarker).string(),
                                         absl::StrCat("job ", job, "\n")));
  // Folder names have the step with leading zeros, so they sort by step.
  RV_ASSIGN_OR_RETURN(std::vector<fs::path> complete, CompleteFolders(paths));
  std::error_code error;
  std::sort(complete.begin(), complete.end(), std::greater<>());
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 1));
       i < complete.size(); ++i) {
    fs::remove(complete[i] / kMarker, error);
    fs::remove(complete[i], error);  // stays while members have files there
  }
  return absl::OkStatus();
}

}  // namespace rivulet
