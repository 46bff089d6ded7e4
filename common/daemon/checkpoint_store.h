// One daemon's checkpoints: checkpoints/step-0000001234/<member>.safetensors. A
// set is what all members saved of one step; which sets are complete is for the
// controller to know.
//
//   CheckpointStore store(paths.checkpoints(), "worker-0");
//   store.Save(1234, file);
//   for (const auto& found : store.List()->whole) ...  // newest first
//
// Thread-compatible. Several members may share the folder.

#ifndef RIVULET_COMMON_DAEMON_CHECKPOINT_STORE_H_
#define RIVULET_COMMON_DAEMON_CHECKPOINT_STORE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/checkpoint/tensor_file.h"

namespace rivulet {

class CheckpointStore {
 public:
  // `dir` is the run's checkpoints folder, `member` a name such as "shard-1".
  CheckpointStore(std::string dir, std::string member);

  // Writes atomically and durably; replaces what this member had of that step.
  // `file` gets the metadata "checkpoint_member" and "checkpoint_step". Errors
  // name the path and the reason.
  absl::Status Save(int64_t step, TensorFile file);

  struct Found {
    int64_t step = 0;
    std::map<std::string, std::string> metadata;
  };

  struct Listing {
    std::vector<Found> whole;          // newest first
    std::vector<std::string> damaged;  // a line each: step, file and reason
  };

  // Of which steps this member has a file. Every file is read and checked.
  // Empty when there is no folder yet. Errors name what cannot be read.
  absl::StatusOr<Listing> List() const;

  // NotFound, or DataLoss when the file is damaged or is not this member's file
  // of this step.
  absl::StatusOr<TensorFile> Load(int64_t step) const;

  // Removes this member's files, also unfinished ones, of the steps that are
  // not in `keep` and are older than its newest, and step folders that become
  // empty. Newer ones may belong to a set under way. Does nothing when `keep`
  // is empty.
  absl::Status Prune(const std::set<int64_t>& keep);

  // Renames this member's files of the steps after `step`, so that List and
  // Load no longer see them; Prune removes them in its time. Errors name the
  // file.
  absl::Status SetAsideAfter(int64_t step);

  std::string PathOf(int64_t step) const;

 private:
  // All steps that have a folder, newest first.
  absl::StatusOr<std::vector<int64_t>> StepFolders() const;
  std::string FolderOf(int64_t step) const;

  const std::string dir_;
  const std::string member_;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CHECKPOINT_STORE_H_
