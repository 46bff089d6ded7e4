// Small text files, read whole.

#ifndef RIVULET_COMMON_DAEMON_TEXT_FILE_H_
#define RIVULET_COMMON_DAEMON_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace rivulet {

// A whole file. Errors name the path and the reason, by ErrnoToStatus: NotFound
// where there is none.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// From where the open file `fd` stands to its end; `path` is for messages.
absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& path);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_TEXT_FILE_H_
