// SHA-256 (OpenSSL) and the job's random identity.

#ifndef RIVULET_COMMON_DAEMON_DIGEST_H_
#define RIVULET_COMMON_DAEMON_DIGEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(absl::string_view bytes);
// NotFound names the path.
absl::StatusOr<std::string> Sha256HexOfFile(const std::string& path);
// 128 bits from the operating system, as 32 hexadecimal digits.
std::string NewJobId();
bool IsJobId(absl::string_view text);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_DIGEST_H_
