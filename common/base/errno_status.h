// What the operating system refused, as a message and as a Status.

#ifndef RIVULET_COMMON_BASE_ERRNO_STATUS_H_
#define RIVULET_COMMON_BASE_ERRNO_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// "No such file or directory (errno 2)". Thread-safe, which strerror is not.
std::string ErrnoText(int error);

// "<path>: cannot <action>: No such file or directory (errno 2)". For callers
// to whom one code is right whatever the reason; others use ErrnoToStatus.
std::string ErrnoMessage(int error, absl::string_view path,
                         absl::string_view action);

// The same with abseil's code for `error`, not 0: PermissionDenied for EACCES,
// EPERM and EROFS, NotFound for ENOENT, ResourceExhausted for ENOSPC, EDQUOT
// and EMFILE, FailedPrecondition for ENOTDIR and EISDIR, and so on.
absl::Status ErrnoToStatus(int error, absl::string_view path,
                           absl::string_view action);

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_ERRNO_STATUS_H_
