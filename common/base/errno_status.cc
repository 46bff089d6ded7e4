#include "common/base/errno_status.h"

#include <system_error>

#include "absl/strings/str_cat.h"

namespace rivulet {

std::string ErrnoText(int error) {
  return absl::StrCat(std::generic_category().message(error), " (errno ", error,
                      ")");
}

std::string ErrnoMessage(int error, absl::string_view path,
                         absl::string_view action) {
  return absl::StrCat(path, ": cannot ", action, ": ", ErrnoText(error));
}

absl::Status ErrnoToStatus(int error, absl::string_view path,
                           absl::string_view action) {
  return absl::Status(absl::ErrnoToStatusCode(error),
                      ErrnoMessage(error, path, action));
}

}  // namespace rivulet
