#include "common/daemon/checkpoint_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/run_folder.h"

namespace rivulet {
namespace {

namespace fs = std::filesystem;

constexpr char kFolderPrefix[] = "step-";
constexpr size_t kStepDigits = 10;
constexpr char kMemberKey[] = "checkpoint_member";
// After the name of a file that is not to be found any more.
constexpr char kAside[] = ".aside";
constexpr char kStepKey[] = "checkpoint_step";

absl::Status FileError(const std::string& path, absl::string_view action,
                       int error) {
  return absl::InternalError(ErrnoMessage(error, path, action));
}

// Makes the names in a folder durable.
absl::Status SyncFolder(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(dir, "open", errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (error != 0) return FileError(dir, "sync", error);
  return absl::OkStatus();
}

// The step of "step-0000001234"; false for any other name.
bool StepOfFolder(absl::string_view name, int64_t* step) {
  return absl::ConsumePrefix(&name, kFolderPrefix) &&
         name.size() >= kStepDigits &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(name, step);
}

std::string MetadataOf(const TensorFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? "nothing" : found->second;
}

// Whether `name` is the member's file or an unfinished one beside it, which has
// more after the name; the dot keeps worker-1 from taking worker-10's.
bool IsMembersFile(const std::string& name, const std::string& member) {
  return absl::StartsWith(name, absl::StrCat(member, ".safetensors"));
}

}  // namespace

CheckpointStore::CheckpointStore(std::string dir, std::string member)
    : dir_(std::move(dir)), member_(std::move(member)) {}

std::string CheckpointStore::FolderOf(int64_t step) const {
  return absl::StrFormat("%s/%s%010d", dir_, kFolderPrefix, step);
}

std::string CheckpointStore::PathOf(int64_t step) const {
  return absl::StrCat(FolderOf(step), "/", member_, ".safetensors");
}

absl::Status CheckpointStore::Save(int64_t step, TensorFile file) {
  RV_RETURN_IF_ERROR(MakeFolders(FolderOf(step)));
  // The file's own folder is synced as it is written; the name of that folder
  // must last as well.
  RV_RETURN_IF_ERROR(SyncFolder(dir_));
  file.metadata[kMemberKey] = member_;
  file.metadata[kStepKey] = absl::StrCat(step);
  return WriteTensorFile(PathOf(step), file);
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::StepFolders() const {
  std::vector<int64_t> steps;
  std::error_code error;
  fs::directory_iterator entry(dir_, error);
  if (error == std::errc::no_such_file_or_directory) return steps;
  if (error) return FileError(dir_, "read the folder", error.value());
  for (; entry != fs::directory_iterator(); entry.increment(error)) {
    int64_t step = 0;
    if (StepOfFolder(entry->path().filename().string(), &step)) {
      steps.push_back(step);
    }
  }
  if (error) return FileError(dir_, "read the folder", error.value());
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

absl::StatusOr<std::vector<CheckpointStore::Found>> CheckpointStore::List()
    const {
  RV_ASSIGN_OR_RETURN(const std::vector<int64_t> folders, StepFolders());
  std::vector<Found> whole;
  for (const int64_t step : folders) {
    absl::StatusOr<TensorFile> file = Load(step);
    if (file.ok()) {
      whole.push_back({step, std::move(file->metadata)});
    } else if (absl::IsDataLoss(file.status())) {
      spdlog::warn("checkpoint of step {} is left out: {}", step,
                   std::string(file.status().message()));
    } else if (!absl::IsNotFound(file.status())) {
      // Unreadable is not lost: going on without it would start over.
      return file.status();
    }
  }
  return whole;
}

absl::StatusOr<TensorFile> CheckpointStore::Load(int64_t step) const {
  const std::string path = PathOf(step);
  RV_ASSIGN_OR_RETURN(TensorFile file, ReadTensorFile(path));
  const std::string member = MetadataOf(file, kMemberKey);
  const std::string found_step = MetadataOf(file, kStepKey);
  if (member != member_ || found_step != absl::StrCat(step)) {
    return absl::DataLossError(
        absl::StrCat(path, ": found the checkpoint of ", member, ", step ",
                     found_step, "; expected ", member_, ", step ", step));
  }
  return file;
}

absl::Status CheckpointStore::SetAsideAfter(int64_t step) {
  RV_ASSIGN_OR_RETURN(const std::vector<int64_t> folders, StepFolders());
  for (const int64_t later : folders) {
    if (later <= step) break;  // newest first
    const std::string path = PathOf(later);
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    fs::rename(path, absl::StrCat(path, kAside), error);
    if (error) return FileError(path, "set aside", error.value());
    spdlog::warn("{} is set aside: the run goes on from step {}", path, step);
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::Prune(const std::set<int64_t>& keep) {
  if (keep.empty()) return absl::OkStatus();
  RV_ASSIGN_OR_RETURN(const std::vector<int64_t> folders, StepFolders());
  for (const int64_t step : folders) {
    if (step >= *keep.rbegin() || keep.count(step) > 0) continue;
    const std::string folder = FolderOf(step);
    std::error_code error;
    std::vector<fs::path> files;
    for (fs::directory_iterator entry(folder, error);
         !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (IsMembersFile(entry->path().filename().string(), member_)) {
        files.push_back(entry->path());
      }
    }
    for (const fs::path& file : files) {
      if (!error) fs::remove(file, error);
    }
    // Another member may have removed the folder meanwhile.
    if (error && error != std::errc::no_such_file_or_directory) {
      return FileError(folder, "remove files", error.value());
    }
    // Fails, as it should, while other members still have files there.
    fs::remove(folder, error);
  }
  return absl::OkStatus();
}

}  // namespace rivulet
