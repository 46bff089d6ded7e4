#include "worker/cli/local_cluster.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/daemon/exit_codes.h"
#include "common/daemon/run_folder.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);

// The first line that arrives on `pipe`, without its end.
absl::StatusOr<std::string> ReadLine(const Pipe& pipe, absl::Time deadline,
                                     const std::function<bool()>& cancelled) {
  std::string line;
  for (;;) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("did not get ready in time");
    }
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError("stopped before it began");
    }
    pollfd waiting = {pipe.read_end(), POLLIN, 0};
    const int timeout =
        static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kPoll))) + 1;
    if (poll(&waiting, 1, timeout) <= 0) continue;
    char byte = 0;
    const ssize_t got = read(pipe.read_end(), &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::UnavailableError("ended before it was ready");
    if (byte == '\n') return line;
    line.push_back(byte);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const LocalClusterOptions& options) {
  RV_ASSIGN_OR_RETURN(Pipe life, Pipe::Create());
  std::unique_ptr<LocalCluster> cluster(
      new LocalCluster(options, std::move(life)));
  RV_RETURN_IF_ERROR(cluster->StartController());
  for (int shard = 0; shard < options.shards; ++shard) {
    // Where a config for several machines has them listen does not suit one.
    RV_RETURN_IF_ERROR(cluster->StartDaemon(
        absl::StrCat("shard-", shard), "rivulet-server",
        {"--shard", absl::StrCat(shard), "--set", "local.listen=127.0.0.1:0",
         "--set", "local.advertise="}));
  }
  for (int rank = 0; rank < options.workers; ++rank) {
    RV_RETURN_IF_ERROR(cluster->StartDaemon(absl::StrCat("worker-", rank),
                                            "rivulet-worker",
                                            {"--rank", absl::StrCat(rank)}));
  }
  return cluster;
}

LocalCluster::~LocalCluster() { KillAll(); }

std::vector<std::string> LocalCluster::CommonArguments(
    const std::string& program) const {
  std::vector<std::string> arguments = {
      absl::StrCat(options_.program_dir, "/", program),
      "--config",
      options_.config_path,
      "--run-dir",
      options_.run_dir,
      "--parent-fd",
      absl::StrCat(kChildParentFd)};
  if (options_.resume) arguments.push_back("--resume");
  for (const std::string& override_text : options_.overrides) {
    arguments.push_back("--set");
    arguments.push_back(override_text);
  }
  return arguments;
}

absl::Status LocalCluster::StartController() {
  RV_ASSIGN_OR_RETURN(Pipe ready, Pipe::Create());
  std::vector<std::string> arguments = CommonArguments("rivulet-controller");
  arguments.insert(arguments.end(),
                   {"--set", "cluster.controller=127.0.0.1:0", "--ready-fd",
                    absl::StrCat(kChildReadyFd)});
  RV_ASSIGN_OR_RETURN(
      std::unique_ptr<Child> child,
      Child::Spawn("controller", std::move(arguments), life_, &ready));
  children_.push_back(std::move(child));
  ready.CloseWrite();
  absl::StatusOr<std::string> line =
      ReadLine(ready, absl::Now() + options_.ready_timeout, options_.cancelled);
  if (absl::IsCancelled(line.status())) return line.status();
  if (!line.ok()) {
    Child& controller = *children_[0];
    if (controller.WaitFor(absl::Seconds(5))) return Reason(controller);
    return Annotate(line.status(), "controller");
  }
  address_ = *std::move(line);
  return absl::OkStatus();
}

absl::Status LocalCluster::StartDaemon(const std::string& name,
                                       const std::string& program,
                                       const std::vector<std::string>& role) {
  std::vector<std::string> arguments = CommonArguments(program);
  arguments.insert(arguments.end(), role.begin(), role.end());
  arguments.push_back("--set");
  arguments.push_back(absl::StrCat("cluster.controller=", address_));
  RV_ASSIGN_OR_RETURN(std::unique_ptr<Child> child,
                      Child::Spawn(name, std::move(arguments), life_, nullptr));
  children_.push_back(std::move(child));
  return absl::OkStatus();
}

void LocalCluster::Note() {
  for (const std::unique_ptr<Child>& child : children_) {
    const std::optional<ChildExit>& exit = child->Poll();
    if (!exit.has_value() || exit->code == kExitOk) continue;
    first_end_ = std::min(first_end_, absl::Now());
    const bool stopped = exit->signal == 0 && exit->code == kExitInterrupted;
    if (first_failed_ == nullptr && !stopped && !EndedByUs(*child, *exit)) {
      first_failed_ = child.get();
    }
  }
  if (children_[0]->Poll().has_value()) {
    controller_end_ = std::min(controller_end_, absl::Now());
  }
}

bool LocalCluster::Poll() {
  Note();
  const bool all_ended =
      std::all_of(children_.begin(), children_.end(),
                  [](const auto& child) { return child->Poll().has_value(); });
  if (all_ended) return true;
  const absl::Time now = absl::Now();
  // The controller may not know a child that has ended, and would wait for it.
  if (first_end_ <= now) Tell(*children_[0]);
  // Nor did it know those that still look for it.
  if (controller_end_ <= now) {
    for (const std::unique_ptr<Child>& child : children_) Tell(*child);
  }
  if (now - first_end_ > options_.controller_grace ||
      now - controller_end_ > options_.leave_grace) {
    KillAll();
    return true;
  }
  return false;
}

void LocalCluster::RequestStop() { Tell(*children_[0]); }

void LocalCluster::Tell(Child& child) {
  if (told_.insert(&child).second) child.Signal(SIGTERM);
}

void LocalCluster::KillAll() {
  Note();
  for (const std::unique_ptr<Child>& child : children_) {
    if (child->Poll().has_value()) continue;
    killed_.insert(child.get());
    child->Signal(SIGKILL);
  }
  for (const std::unique_ptr<Child>& child : children_) {
    child->WaitFor(absl::Seconds(5));
  }
}

bool LocalCluster::EndedByUs(const Child& child, const ChildExit& exit) const {
  // A signal may come before the child handles it.
  return killed_.contains(&child) ||
         (exit.signal == SIGTERM && told_.contains(&child));
}

absl::Status LocalCluster::Reason(Child& child) const {
  child.WaitFor(absl::ZeroDuration());
  const ChildExit exit = child.Poll().value_or(ChildExit{});
  // A process that was killed went away: a retry may help.
  const absl::StatusCode code = exit.signal != 0
                                    ? absl::StatusCode::kUnavailable
                                    : StatusCodeOfExit(exit.code);
  std::string reason = child.LastWord();
  // The controller speaks for the run.
  const bool verdict = &child == children_[0].get() && !reason.empty();
  if (verdict && code == absl::StatusCode::kCancelled) {
    return absl::CancelledError(reason);
  }
  if (reason.empty() && exit.signal != 0) {
    reason = absl::StrFormat("was killed by signal %d", exit.signal);
    if (exit.signal == SIGKILL) {
      reason += " (by the system, if nobody else did it: out of memory)";
    }
  }
  if (reason.empty()) {
    reason = absl::StrFormat("ended with exit code %d", exit.code);
    for (const std::string& line : child.Tail()) {
      absl::StrAppend(&reason, "\n  ", line);
    }
  }
  const std::string log = RunPaths(options_.run_dir).Log(child.name());
  std::error_code ignored;  // a log that cannot be looked at is not named
  if (std::filesystem::exists(log, ignored)) {
    absl::StrAppend(&reason, " (log: ", log, ")");
  }
  return absl::Status(
      code, verdict ? reason : absl::StrCat(child.name(), ": ", reason));
}

absl::Status LocalCluster::Result() {
  for (const std::unique_ptr<Child>& child : children_) {
    const std::optional<ChildExit>& exit = child->Poll();
    if (exit.has_value() && exit->signal != 0 && !EndedByUs(*child, *exit)) {
      return Reason(*child);
    }
  }
  Child& controller = *children_[0];
  const std::optional<ChildExit>& end = controller.Poll();
  const bool hung = !end.has_value() || EndedByUs(controller, *end);
  const bool has_failed =
      !hung && end->code != kExitOk && end->code != kExitInterrupted;
  if (has_failed) return Reason(controller);
  if (first_failed_ != nullptr) return Reason(*first_failed_);
  if (hung) {
    return absl::InternalError("controller: did not end and was killed");
  }
  return end->code == kExitOk ? absl::OkStatus() : Reason(controller);
}

}  // namespace rivulet
