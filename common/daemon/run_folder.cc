#include "common/daemon/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "models/checkpoint/atomic_file.h"

namespace rivulet {
namespace {

absl::Status Denied(const std::string& path, absl::string_view action,
                    int error) {
  return absl::PermissionDeniedError(absl::StrCat(
      ErrnoMessage(error, path, action),
      "; write local.run_dir or --run-dir to name a folder that this user can "
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

// Whether `path` still names the open file.
bool IsStillNamed(const std::string& path, int fd) {
  struct stat named = {};
  struct stat open_file = {};
  return stat(path.c_str(), &named) == 0 && fstat(fd, &open_file) == 0 &&
         named.st_ino == open_file.st_ino && named.st_dev == open_file.st_dev;
}

// Opens and locks the file. The file of a run stays when the lock is let go.
absl::StatusOr<int> Lock(const RunPaths& paths) {
  const std::string path = paths.lock();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Denied(path, "open", errno);
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  // The holder of a folder without a run removes it as it leaves.
  if (!locked || !IsStillNamed(path, fd)) {
    const int error = locked ? EWOULDBLOCK : errno;
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

// What a process that was killed left of files that were to appear whole. The
// folder's own only: checkpoints belong to members that may be at work.
void RemoveUnfinishedFiles(const std::string& dir) {
  std::error_code error;  // what cannot be read or removed does no harm
  for (std::filesystem::directory_iterator entry(dir, error), end;
       !error && entry != end; entry.increment(error)) {
    if (!IsUnfinishedFile(entry->path().filename().string())) continue;
    std::error_code ignored;
    std::filesystem::remove(entry->path(), ignored);
  }
}

// What of an earlier run the folder holds; empty when nothing.
absl::StatusOr<std::string> EarlierRun(const RunPaths& paths) {
  std::error_code error;
  if (std::filesystem::exists(paths.summary(), error)) return paths.summary();
  const std::filesystem::directory_iterator entries(paths.checkpoints(), error);
  if (error == std::errc::no_such_file_or_directory) return std::string();
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

absl::Status AsRunFolderError(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status)
             ? absl::PermissionDeniedError(status.message())
             : status;
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
  std::error_code error;
  const bool is_new = !std::filesystem::exists(dir, error) && !error;
  RV_RETURN_IF_ERROR(MakeFolders(dir));
  RV_ASSIGN_OR_RETURN(const int fd, Lock(paths));
  // From here on the lock is let go on errors.
  RunFolder folder(paths, fd, is_new);
  RV_ASSIGN_OR_RETURN(const std::string earlier, EarlierRun(paths));
  if (!earlier.empty() && !resume) {
    return absl::AlreadyExistsError(absl::StrCat(
        dir, ": the folder already has a run (", earlier,
        "); go on with it by --resume, or name another folder by --run-dir"));
  }
  return folder;
}

absl::Status RunFolder::Populate() {
  is_new_ = false;
  RemoveUnfinishedFiles(paths_.dir());
  RV_RETURN_IF_ERROR(MakeFolders(paths_.checkpoints()));
  return MakeFolders(paths_.logs());
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : paths_(std::move(other.paths_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      is_new_(other.is_new_) {}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  if (this == &other) return *this;
  LetGo();
  paths_ = std::move(other.paths_);
  lock_fd_ = std::exchange(other.lock_fd_, -1);
  is_new_ = other.is_new_;
  return *this;
}

RunFolder::~RunFolder() { LetGo(); }

void RunFolder::LetGo() {
  if (lock_fd_ < 0) return;
  if (is_new_) {
    // While the lock is held; the folder only goes where nothing else is in it.
    unlink(paths_.lock().c_str());
    rmdir(paths_.dir().c_str());
  }
  close(lock_fd_);
}

}  // namespace rivulet
