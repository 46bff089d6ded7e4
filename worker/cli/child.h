// One child process of `rivulet train`: started by posix_spawn, its output kept
// by the tail, ended with its parent.
//
// The child gets two descriptors: the read end of the parent's life pipe, whose
// other end closes when the parent dies (however it dies), and, if asked, a
// pipe on which it says that it is ready.

#ifndef RIVULET_WORKER_CLI_CHILD_H_
#define RIVULET_WORKER_CLI_CHILD_H_

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/sync.h"

namespace rivulet {

// A pipe whose ends close with the object. Both ends are close-on-exec.
class Pipe {
 public:
  static absl::StatusOr<Pipe> Create();
  Pipe(Pipe&& other) noexcept;
  Pipe& operator=(Pipe&& other) noexcept;
  ~Pipe();

  int read_end() const { return read_end_; }
  int write_end() const { return write_end_; }
  void CloseRead();
  void CloseWrite();

 private:
  Pipe(int read_end, int write_end)
      : read_end_(read_end), write_end_(write_end) {}
  int read_end_ = -1;
  int write_end_ = -1;
};

// Descriptors in the child.
inline constexpr int kChildParentFd = 3;
inline constexpr int kChildReadyFd = 4;

// How a process ended.
struct ChildExit {
  int code = 0;    // its exit code, or 128 + the signal that killed it
  int signal = 0;  // 0 when it exited by itself
};

// Thread-compatible, except where said.
class Child {
 public:
  // `arguments[0]` is the program's path. `life` is the parent's life pipe.
  // `ready`, if not null, becomes kChildReadyFd in the child. The child leads a
  // process group of its own, so that a terminal's Ctrl-C reaches the parent
  // alone.
  static absl::StatusOr<std::unique_ptr<Child>> Spawn(
      std::string name, std::vector<std::string> arguments, const Pipe& life,
      const Pipe* ready);

  // Kills the process if it still runs, and reaps it. What a process of its own
  // may write after that is not waited for.
  ~Child();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }

  // Nothing while it runs. Reaps it the first time it is found ended.
  const std::optional<ChildExit>& Poll();
  // Waits for its end for at most `timeout`; false if it still runs. Once true,
  // Tail() has all that it wrote.
  bool WaitFor(absl::Duration timeout);
  void Signal(int signal);

  // The last lines that it wrote to standard output and error. Thread-safe.
  std::vector<std::string> Tail() const ABSL_LOCKS_EXCLUDED(mu_);
  // Why it ended, in its own words: the text after "rivulet-...: error: " or
  // "rivulet-...: " of its last such line (ReportEnd's); empty if none.
  std::string LastWord() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Child(std::string name, Pipe output, Pipe leave)
      : name_(std::move(name)),
        output_(std::move(output)),
        leave_(std::move(leave)) {}
  void DrainOutput() ABSL_LOCKS_EXCLUDED(mu_);

  const std::string name_;
  pid_t pid_ = -1;
  std::optional<ChildExit> exit_;
  Pipe output_;
  Pipe leave_;  // its write end closes when the drain thread may end
  std::thread drain_;
  mutable Mutex mu_;
  std::deque<std::string> tail_ ABSL_GUARDED_BY(mu_);
  bool drained_ ABSL_GUARDED_BY(mu_) = false;
  CondVar drained_changed_;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_CLI_CHILD_H_
