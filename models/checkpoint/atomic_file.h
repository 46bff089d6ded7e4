// A file that appears whole or not at all: bytes go into a temporary file
// beside the target, which takes the target's place once it is on the disk.
//
//   RV_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
//   RV_RETURN_IF_ERROR(file->Append(bytes));
//   RV_RETURN_IF_ERROR(file->Commit());
//
// Thread-compatible; several writers of one target do not disturb each other,
// and the last to commit wins.

#ifndef RIVULET_MODELS_CHECKPOINT_ATOMIC_FILE_H_
#define RIVULET_MODELS_CHECKPOINT_ATOMIC_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// Makes the names in a folder durable: a renamed file survives a power failure
// only once its folder is on the disk.
absl::Status SyncFolder(const std::string& folder);

// Whether a file's name is that of a temporary file of this kind.
bool IsUnfinishedFile(absl::string_view name);

class AtomicFile {
 public:
  // Opens the temporary file, <path>.tmp.<process>.<count>. Like all errors
  // here, failure names the file and the system's reason.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      const std::string& path);

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Without a Commit that succeeded, removes the temporary file; the target is
  // as it was.
  ~AtomicFile();

  absl::Status Append(absl::string_view bytes);

  // fsync, rename, fsync of the folder. Call once, last.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  absl::Status CloseDescriptor();

  const std::string path_;
  const std::string temporary_;
  int descriptor_;  // -1 once closed
  bool renamed_ = false;
};

// Replaces `path` by `bytes` in these steps.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& bytes);

}  // namespace rivulet

#endif  // RIVULET_MODELS_CHECKPOINT_ATOMIC_FILE_H_
