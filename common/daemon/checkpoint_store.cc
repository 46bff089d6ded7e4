#include "common/daemon/checkpoint_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
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
#include "models/checkpoint/atomic_file.h"

namespace rivulet {
namespace {

namespace fs = std::filesystem;

constexpr char kFolderPrefix[] = "step-";
constexpr size_t kStepDigits = 10;
constexpr char kMemberKey[] = "checkpoint_member";
// After the name of a file that is not to be found any more.
constexpr char kAside[] = ".aside";
constexpr char kStepKey[] = "checkpoint_step";

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
  if (error) return ErrnoToStatus(error.value(), dir_, "read the folder");
  for (; entry != fs::directory_iterator(); entry.increment(error)) {
    int64_t step = 0;
    if (StepOfFolder(entry->path().filename().string(), &step)) {
      steps.push_back(step);
    }
  }
  if (error) return ErrnoToStatus(error.value(), dir_, "read the folder");
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

absl::StatusOr<CheckpointStore::Listing> CheckpointStore::List() const {
  RV_ASSIGN_OR_RETURN(const std::vector<int64_t> folders, StepFolders());
  Listing listing;
  for (const int64_t step : folders) {
    absl::StatusOr<TensorFile> file = Load(step);
    if (file.ok()) {
      listing.whole.push_back({step, std::move(file->metadata)});
    } else if (absl::IsDataLoss(file.status())) {
      listing.damaged.push_back(
          absl::StrCat("the checkpoint of step ", step,
                       " is left out: ", file.status().message()));
    } else if (!absl::IsNotFound(file.status())) {
      // Unreadable is not lost: going on without it would start over.
      return file.status();
    }
  }
  return listing;
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
    if (error) return ErrnoToStatus(error.value(), path, "set aside");
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
      return ErrnoToStatus(error.value(), folder, "remove files");
    }
    // Fails, as it should, while other members still have files there.
    fs::remove(folder, error);
  }
  return absl::OkStatus();
}

}  // namespace rivulet
