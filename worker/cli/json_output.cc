#include "worker/cli/json_output.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/errno_status.h"
#include "models/checkpoint/atomic_file.h"

namespace rivulet {

absl::Status CheckJsonPath(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  namespace fs = std::filesystem;
  const fs::path target(path);
  std::error_code ignored;  // what cannot be looked at is no folder
  if (!target.has_filename() || fs::is_directory(target, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--json: found the folder ", path, "; allowed: a file"));
  }
  const fs::path folder =
      target.has_parent_path() ? target.parent_path() : fs::path(".");
  // A path with a final slash fails for what is no folder.
  if (access((folder / "").c_str(), W_OK | X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--json ", path, ": cannot write into ", folder.string(),
                     ": ", ErrnoText(errno)));
  }
  return absl::OkStatus();
}

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return absl::OkStatus();
  return WriteFileAtomically(path, json.dump(2) + "\n");
}

}  // namespace rivulet
