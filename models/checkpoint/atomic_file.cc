#include "models/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

// Between the target's name and what makes the temporary file's its own.
constexpr absl::string_view kInfix = ".tmp.";

std::string FolderOf(const std::string& path) {
  const std::filesystem::path parent =
      std::filesystem::path(path).parent_path();
  return parent.empty() ? std::string(".") : parent.string();
}

}  // namespace

absl::Status SyncFolder(const std::string& folder) {
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoToStatus(errno, folder, "open the folder");
  // Some file systems cannot sync folders and say so by EINVAL.
  absl::Status status = absl::OkStatus();
  if (fsync(descriptor) != 0 && errno != EINVAL) {
    status = ErrnoToStatus(errno, folder, "sync the folder");
  }
  close(descriptor);
  return status;
}

bool IsUnfinishedFile(absl::string_view name) {
  const size_t infix = name.rfind(kInfix);
  if (infix == absl::string_view::npos || infix == 0) return false;
  const std::vector<absl::string_view> numbers =
      absl::StrSplit(name.substr(infix + kInfix.size()), '.');
  return numbers.size() == 2 &&
         std::all_of(numbers.begin(), numbers.end(), [](absl::string_view n) {
           return !n.empty() &&
                  std::all_of(n.begin(), n.end(), absl::ascii_isdigit);
         });
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!renamed_) unlink(temporary_.c_str());
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    const std::string& path) {
  static std::atomic<uint64_t> count{0};
  std::string temporary =
      absl::StrCat(path, kInfix, getpid(), ".",
                   count.fetch_add(1, std::memory_order_relaxed));
  // What an earlier process of the same number left behind is overwritten.
  const int descriptor =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return ErrnoToStatus(errno, temporary, "create");
  return std::unique_ptr<AtomicFile>(
      new AtomicFile(path, std::move(temporary), descriptor));
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoToStatus(errno, temporary_, "write");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::CloseDescriptor() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) return ErrnoToStatus(errno, temporary_, "close");
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fsync(descriptor_) != 0) return ErrnoToStatus(errno, temporary_, "sync");
  RV_RETURN_IF_ERROR(CloseDescriptor());
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoToStatus(errno, path_, "put a temporary file in its place");
  }
  renamed_ = true;
  return SyncFolder(FolderOf(path_));
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& bytes) {
  RV_ASSIGN_OR_RETURN(const auto out, AtomicFile::Create(path));
  RV_RETURN_IF_ERROR(out->Append(bytes));
  return out->Commit();
}

}  // namespace rivulet
