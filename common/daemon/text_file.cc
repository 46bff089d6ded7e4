#include "common/daemon/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "common/base/errno_status.h"

namespace rivulet {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, path, "open");
  const absl::Cleanup close_file = [fd] { close(fd); };
  return ReadToEnd(fd, path);
}

absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& path) {
  std::string bytes;
  char buffer[16384];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoToStatus(errno, path, "read");
    if (got == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace rivulet
