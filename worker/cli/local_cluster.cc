#include "worker/cli/local_cluster.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/daemon/exit_codes.h"

namespace rivulet {
namespace {

// How long the others may take to end by themselves after a child has failed:
// the controller tells everybody, and the shards and workers leave.
constexpr absl::Duration kGrace = absl::Seconds(15);

// A daemon that fails before it has joined is unknown to the controller, which
// would wait for it: after this long it is told to stop.
constexpr absl::Duration kTellController = absl::Seconds(1);

absl::StatusCode CodeOfExit(const ChildExit& exit) {
  switch (exit.code) {
    case kExitUsage:
      return absl::StatusCode::kInvalidArgument;
    case kExitData:
      return absl::StatusCode::kNotFound;
    case kExitUnavailable:
      return absl::StatusCode::kUnavailable;
    case kExitRunFolder:
      return absl::StatusCode::kAlreadyExists;
    case kExitInterrupted:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kInternal;
  }
}

// The first line that arrives on `pipe`, without its end.
absl::StatusOr<std::string> ReadLine(const Pipe& pipe, absl::Time deadline) {
  std::string line;
  for (;;) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("did not get ready in time");
    }
    pollfd waiting = {pipe.read_end(), POLLIN, 0};
    const int timeout = static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
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
      ReadLine(ready, absl::Now() + options_.ready_timeout);
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

bool LocalCluster::Poll() {
  bool all_ended = true;
  for (const std::unique_ptr<Child>& child : children_) {
    const std::optional<ChildExit>& exit = child->Poll();
    if (!exit.has_value()) {
      all_ended = false;
    } else if (exit->code != 0 && first_failed_ == nullptr && !killed_) {
      first_failed_ = child.get();
      failed_at_ = absl::Now();
    }
  }
  // A controller that has ended, well or not, leaves nothing to wait for.
  if (children_[0]->Poll().has_value() &&
      failed_at_ == absl::InfiniteFuture()) {
    failed_at_ = absl::Now();
  }
  const absl::Duration since_failure = absl::Now() - failed_at_;
  if (!all_ended && !told_ && since_failure > kTellController) {
    told_ = true;
    RequestStop();
  }
  if (!all_ended && since_failure > kGrace) {
    KillAll();
    return true;
  }
  return all_ended;
}

void LocalCluster::RequestStop() { children_[0]->Signal(SIGTERM); }

void LocalCluster::KillAll() {
  killed_ = true;
  for (const std::unique_ptr<Child>& child : children_) child->Signal(SIGKILL);
  for (const std::unique_ptr<Child>& child : children_) {
    child->WaitFor(absl::Seconds(5));
  }
}

absl::Status LocalCluster::Reason(Child& child) const {
  child.WaitFor(absl::ZeroDuration());
  const ChildExit exit = child.Poll().value_or(ChildExit{});
  std::string reason = child.LastError();
  if (reason.empty() && exit.signal != 0) {
    reason = absl::StrFormat("was killed by signal %d", exit.signal);
  }
  if (reason.empty()) {
    reason = absl::StrFormat("ended with exit code %d", exit.code);
    for (const std::string& line : child.Tail()) {
      absl::StrAppend(&reason, "\n  ", line);
    }
  }
  return absl::Status(
      CodeOfExit(exit),
      absl::StrCat(child.name(), ": ", reason, " (log: ", options_.run_dir,
                   "/logs/", child.name(), ".log)"));
}

absl::Status LocalCluster::Result() {
  // The first to fail knows why; the others end because of it. A process that
  // something killed says nothing, so it is looked for first.
  for (const std::unique_ptr<Child>& child : children_) {
    const std::optional<ChildExit>& exit = child->Poll();
    if (!killed_ && exit.has_value() && exit->signal != 0) {
      return Reason(*child);
    }
  }
  if (first_failed_ != nullptr) return Reason(*first_failed_);
  if (killed_) return absl::InternalError("not all processes ended in time");
  return absl::OkStatus();
}

}  // namespace rivulet
