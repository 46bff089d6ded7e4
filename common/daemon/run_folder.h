// The folder of one run: where its files are, and who may write them.
//
//   RV_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Create(dir, resume));
//   WriteFileAtomically(folder.paths().summary(), json);
//
// The controller holds the folder for as long as it runs; other daemons only
// need RunPaths.

#ifndef RIVULET_COMMON_DAEMON_RUN_FOLDER_H_
#define RIVULET_COMMON_DAEMON_RUN_FOLDER_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// Names of a run's files. Immutable value; touches no file.
class RunPaths {
 public:
  explicit RunPaths(std::string dir) : dir_(std::move(dir)) {}

  const std::string& dir() const { return dir_; }
  std::string config() const { return In("config.yaml"); }  // as resolved
  std::string metrics() const { return In("metrics.csv"); }
  std::string summary() const { return In("summary.json"); }  // at the end
  std::string weights() const { return In("weights.safetensors"); }
  std::string checkpoints() const { return In("checkpoints"); }
  std::string logs() const { return In("logs"); }
  std::string frames() const { return In("frames"); }  // report.frames_every
  // Of one process: "worker-0".
  std::string Log(absl::string_view process) const;
  std::string lock() const { return In("lock"); }
  // The controller's own: identity, schedule, totals so far.
  std::string job() const { return In("job"); }
  std::string schedule() const { return In("schedule.log"); }
  std::string progress() const { return In("progress.json"); }

 private:
  std::string In(absl::string_view name) const;

  std::string dir_;
};

// A run folder that this process holds. Move-only; lets go when destroyed, and
// the operating system does so for a process that dies. Thread-compatible.
// An error of a run's own files as users are told of it: what is not there, or
// is no file, is the run folder's fault (PermissionDenied), not missing data. A
// full disk, and what the file holds, keep their codes.
absl::Status AsRunFolderError(const absl::Status& status);

class RunFolder {
 public:
  // Creates `dir` where it is missing, and locks it. AlreadyExists when another
  // process holds it (named by its pid), or when it has a run (summary.json, or
  // anything in checkpoints/) and `resume` is false. PermissionDenied names
  // path and errno when it cannot be read or written.
  static absl::StatusOr<RunFolder> Create(const std::string& dir, bool resume);

  // Makes checkpoints/ and logs/ where they are missing. A folder that Create
  // has made goes again with this object unless this was called: what fails
  // before it leaves nothing behind. PermissionDenied as above.
  absl::Status Populate();

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;
  ~RunFolder();

  const RunPaths& paths() const { return paths_; }

 private:
  RunFolder(RunPaths paths, int lock_fd, bool is_new)
      : paths_(std::move(paths)), lock_fd_(lock_fd), is_new_(is_new) {}

  void LetGo();

  RunPaths paths_;
  int lock_fd_;  // -1: moved from
  bool is_new_;  // made by Create, and empty but for the lock
};

// Creates a folder and its parents where they are missing. PermissionDenied
// names path and errno.
absl::Status MakeFolders(const std::string& dir);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_RUN_FOLDER_H_
