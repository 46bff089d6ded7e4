// Errors of files that somebody named.

#ifndef RIVULET_COMMON_BASE_FILE_ERROR_H_
#define RIVULET_COMMON_BASE_FILE_ERROR_H_

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rivulet {

// Of a file to be read, with errno. NotFound whatever the reason: to its reader
// a file that may not be opened is missing.
inline absl::Status CannotOpen(const std::string& path, int error) {
  return absl::NotFoundError(
      absl::StrCat("cannot open ", path, ": ", std::strerror(error)));
}

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_FILE_ERROR_H_
