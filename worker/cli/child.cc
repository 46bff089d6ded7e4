#include "worker/cli/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"

// What posix_spawn hands on; POSIX declares it in no header.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
extern char** environ;

namespace rivulet {
namespace {

constexpr size_t kTailLines = 20;
constexpr size_t kLongestLine = 4096;

// A process of the child's own that outlives it may hold its output open.
constexpr absl::Duration kDrainTime = absl::Seconds(2);

void CloseFd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

absl::Status SpawnError(const std::string& program, int error) {
  return absl::InternalError(
      absl::StrCat("cannot start ", program, ": ", ErrnoText(error)));
}

// posix_spawn's attribute and action objects need destroying on every path.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP |
                                               POSIX_SPAWN_SETSIGMASK |
                                               POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD}) {
      sigaddset(&defaults, signal);
    }
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  void Inherit(int fd, int as) {
    posix_spawn_file_actions_adddup2(&actions_, fd, as);
  }
  void OpenNull(int as) {
    posix_spawn_file_actions_addopen(&actions_, as, "/dev/null", O_RDONLY, 0);
  }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

absl::StatusOr<Pipe> Pipe::Create() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make a pipe: ", ErrnoText(errno)));
  }
  // dup2 onto the same number would keep close-on-exec in the child, so keep
  // clear of the numbers that children get.
  for (int& end : ends) {
    const int moved = fcntl(end, F_DUPFD_CLOEXEC, kChildReadyFd + 1);
    if (moved < 0) {
      const int error = errno;
      close(ends[0]);
      close(ends[1]);
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot make a pipe: ", ErrnoText(error)));
    }
    close(end);
    end = moved;
  }
  return Pipe(ends[0], ends[1]);
}

Pipe::Pipe(Pipe&& other) noexcept
    : read_end_(std::exchange(other.read_end_, -1)),
      write_end_(std::exchange(other.write_end_, -1)) {}

Pipe& Pipe::operator=(Pipe&& other) noexcept {
  std::swap(read_end_, other.read_end_);
  std::swap(write_end_, other.write_end_);
  return *this;
}

Pipe::~Pipe() {
  CloseRead();
  CloseWrite();
}

void Pipe::CloseRead() { CloseFd(&read_end_); }
void Pipe::CloseWrite() { CloseFd(&write_end_); }

absl::StatusOr<std::unique_ptr<Child>> Child::Spawn(
    std::string name, std::vector<std::string> arguments, const Pipe& life,
    const Pipe* ready) {
  RV_ASSIGN_OR_RETURN(Pipe output, Pipe::Create());
  RV_ASSIGN_OR_RETURN(Pipe leave, Pipe::Create());
  std::unique_ptr<Child> child(
      new Child(std::move(name), std::move(output), std::move(leave)));

  SpawnSettings settings;
  settings.OpenNull(STDIN_FILENO);
  settings.Inherit(child->output_.write_end(), STDOUT_FILENO);
  settings.Inherit(child->output_.write_end(), STDERR_FILENO);
  settings.Inherit(life.read_end(), kChildParentFd);
  if (ready != nullptr) settings.Inherit(ready->write_end(), kChildReadyFd);

  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&child->pid_, argv[0], settings.actions(),
                                settings.attributes(), argv.data(), environ);
  if (error != 0) {
    child->pid_ = -1;
    return SpawnError(arguments[0], error);
  }
  child->output_.CloseWrite();
  child->drain_ = std::thread(&Child::DrainOutput, child.get());
  return child;
}

Child::~Child() {
  if (pid_ > 0 && !Poll().has_value()) {
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  leave_.CloseWrite();
  if (drain_.joinable()) drain_.join();
}

const std::optional<ChildExit>& Child::Poll() {
  if (exit_.has_value() || pid_ <= 0) return exit_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_ = WIFSIGNALED(status)
                ? ChildExit{128 + WTERMSIG(status), WTERMSIG(status)}
                : ChildExit{WEXITSTATUS(status), 0};
  }
  return exit_;
}

bool Child::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!Poll().has_value()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  const absl::Time drain_deadline = absl::Now() + kDrainTime;
  MutexLock lock(&mu_);
  while (!drained_ && absl::Now() < drain_deadline) {
    drained_changed_.WaitWithTimeout(&mu_, drain_deadline - absl::Now());
  }
  return true;
}

void Child::Signal(int signal) {
  if (pid_ > 0 && !Poll().has_value()) kill(pid_, signal);
}

void Child::DrainOutput() {
  std::string line;
  char buffer[4096];
  for (;;) {
    pollfd ends[] = {{output_.read_end(), POLLIN, 0},
                     {leave_.read_end(), POLLIN, 0}};
    if (poll(ends, 2, -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    if (ends[1].revents != 0) break;
    const ssize_t got = read(output_.read_end(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] != '\n') {
        if (line.size() < kLongestLine) line.push_back(buffer[i]);
        continue;
      }
      MutexLock lock(&mu_);
      tail_.push_back(std::exchange(line, std::string()));
      if (tail_.size() > kTailLines) tail_.pop_front();
    }
  }
  MutexLock lock(&mu_);
  if (!line.empty()) tail_.push_back(std::move(line));
  drained_ = true;
  drained_changed_.SignalAll();
}

std::vector<std::string> Child::Tail() const {
  MutexLock lock(&mu_);
  return {tail_.begin(), tail_.end()};
}

std::string Child::LastWord() const {
  MutexLock lock(&mu_);
  for (auto line = tail_.rbegin(); line != tail_.rend(); ++line) {
    const size_t colon = line->find(": ");
    if (colon == std::string::npos || !absl::StartsWith(*line, "rivulet") ||
        line->find(' ') < colon) {
      continue;
    }
    const std::string word = line->substr(colon + 2);
    return std::string(absl::StripPrefix(word, "error: "));
  }
  return "";
}

}  // namespace rivulet
