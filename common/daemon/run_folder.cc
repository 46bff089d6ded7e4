#include "common/daemon/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

absl::Status Denied(const std::string& path, absl::string_view action,
                    int error) {
  return absl::PermissionDeniedError(absl::StrCat(
      path, ": cannot ", action, ": ", std::strerror(error), " (errno ", error,
      "); write local.run_dir or --run-dir to name a folder that this user can "
      "read and write"));
}

// What the holder wrote; text of another program is not repeated.
std::string HolderOf(int fd) {
  char text[32];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  std::string pid;
  for (ssize_t i = 0; i < size && text[i] >= '0' && text[i] <= '9'; ++i) {
    pid += text[i];
  }
  return pid.empty() ? "another process" : absl::StrCat("process ", pid);
}

// Opens and locks the file. The file stays when the lock is let go: removing it
// would let two processes lock two files of one name.
absl::StatusOr<int> Lock(const RunPaths& paths) {
  const std::string path = paths.lock();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Denied(path, "open", errno);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = HolderOf(fd);
    close(fd);
    if (error != EWOULDBLOCK) return Denied(path, "lock", error);
    return absl::AlreadyExistsError(absl::StrCat(
        paths.dir(), ": a run in this folder is going on, held by ", holder,
        "; stop it, or name another folder by --run-dir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) !=
                                   static_cast<ssize_t>(pid.size())) {
    const int error = errno;
    close(fd);
    return Denied(path, "write", error);
  }
  return fd;
}

// What of an earlier run the folder holds; empty when nothing.
absl::StatusOr<std::string> EarlierRun(const RunPaths& paths) {
  std::error_code error;
  if (std::filesystem::exists(paths.summary(), error)) return paths.summary();
  const std::filesystem::directory_iterator entries(paths.checkpoints(), error);
  if (error) return Denied(paths.checkpoints(), "read", error.value());
  if (entries != std::filesystem::directory_iterator()) {
    return entries->path().string();
  }
  return std::string();
}

}  // namespace

std::string RunPaths::In(absl::string_view name) const {
  return absl::StrCat(dir_, "/", name);
}

std::string RunPaths::Log(absl::string_view process) const {
  return absl::StrCat(logs(), "/", process, ".log");
}

absl::Status MakeFolders(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return Denied(dir, "create the folder", error.value());
  if (!std::filesystem::is_directory(dir, error)) {
    return Denied(dir, "use as a folder", error ? error.value() : ENOTDIR);
  }
  return absl::OkStatus();
}

absl::StatusOr<RunFolder> RunFolder::Create(const std::string& dir,
                                            bool resume) {
  const RunPaths paths(dir);
  RV_RETURN_IF_ERROR(MakeFolders(dir));
  RV_ASSIGN_OR_RETURN(const int fd, Lock(paths));
  RunFolder folder(paths, fd);  // from here on the lock is let go on errors
  RV_RETURN_IF_ERROR(MakeFolders(paths.checkpoints()));
  RV_RETURN_IF_ERROR(MakeFolders(paths.logs()));
  RV_ASSIGN_OR_RETURN(const std::string earlier, EarlierRun(paths));
  if (!earlier.empty() && !resume) {
    return absl::AlreadyExistsError(absl::StrCat(
        dir, ": the folder already has a run (", earlier,
        "); go on with it by --resume, or name another folder by --run-dir"));
  }
  return folder;
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : paths_(std::move(other.paths_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)) {}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  if (this == &other) return *this;
  if (lock_fd_ >= 0) close(lock_fd_);
  paths_ = std::move(other.paths_);
  lock_fd_ = std::exchange(other.lock_fd_, -1);
  return *this;
}

RunFolder::~RunFolder() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

}  // namespace rivulet
