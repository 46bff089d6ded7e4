// Figures as a JSON file: what the commands' --json options share.

#ifndef RIVULET_WORKER_CLI_JSON_OUTPUT_H_
#define RIVULET_WORKER_CLI_JSON_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// Whether the figures can be written, before minutes are spent on them.
// InvalidArgument names path and reason. An empty path is fine.
absl::Status CheckJsonPath(const std::string& path);

// Writes `json` atomically; nothing for an empty path.
absl::Status WriteJson(const std::string& path, const nlohmann::json& json);

}  // namespace rivulet

#endif  // RIVULET_WORKER_CLI_JSON_OUTPUT_H_
