#include "common/daemon/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>  // NOLINT(build/c++11)

#include "absl/strings/str_cat.h"
#include "common/base/errno_status.h"
#include "common/daemon/exit_codes.h"

namespace rivulet {
namespace {

// Signal handlers can reach nothing but globals.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> stop_signalled = false;
static_assert(std::atomic<bool>::is_always_lock_free);

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> interrupted = false;

// A second Ctrl-C is a person in a hurry. Others may well come twice: from an
// orchestrator to all processes, and from the parent as well.
void OnStopSignal(int signal) {
  stop_signalled = true;
  if (signal == SIGINT && interrupted.exchange(true)) _exit(kExitInterrupted);
}

}  // namespace

absl::Status ExitWhenClosed(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  if (flags < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parent-fd ", fd, ": ", ErrnoText(errno)));
  }
  fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  // Detached on purpose: it lives as long as the process and touches nothing of
  // it but to end it.
  std::thread([fd] {
    char byte;
    while (true) {
      const ssize_t got = read(fd, &byte, 1);
      if (got == 0 || (got < 0 && errno != EINTR)) _exit(kExitInterrupted);
    }
  }).detach();
  return absl::OkStatus();
}

void CatchStopSignals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Unless nohup has it ignored.
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

void HandleStopSignals() {
  CatchStopSignals(OnStopSignal);
  signal(SIGPIPE, SIG_IGN);
}

bool StopSignalled() { return stop_signalled.load(std::memory_order_relaxed); }

absl::Status WriteAndClose(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      close(fd);
      return absl::UnavailableError(
          absl::StrCat("writing to descriptor ", fd, ": ", ErrnoText(error)));
    }
    done += static_cast<size_t>(wrote);
  }
  close(fd);
  return absl::OkStatus();
}

}  // namespace rivulet
