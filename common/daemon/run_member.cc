#include "common/daemon/run_member.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/digest.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/text_file.h"
#include "common/daemon/utf8.h"

namespace rivulet {
namespace {

// A stream that breaks is often but the echo of what ended the run: the
// controller has this long to tell the reason before this member reports its
// own.
constexpr absl::Duration kReasonGrace = absl::Seconds(3);
// How long a member that has failed waits for the verdict.
constexpr absl::Duration kVerdictTimeout = absl::Seconds(15);

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// Names may be the same on several machines, and differ between the containers
// of one: its kernel's identity does neither. Empty where it has none.
std::string MachineId() {
  const auto text = ReadTextFile("/proc/sys/kernel/random/boot_id");
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

std::string RoleName(v1::Role role) {
  return role == v1::ROLE_WORKER ? "worker" : "shard";
}

bool MayBeEcho(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsAborted(status);
}

}  // namespace

RunMember::RunMember(const Config& config, Options options)
    : config_(config),
      options_(std::move(options)),
      name_(absl::StrCat(RoleName(options_.role), "-", options_.index)),
      canonical_config_(CanonicalConfig(config, /*for_resume=*/false)),
      config_hash_(Sha256Hex(canonical_config_)),
      store_(RunPaths(options_.run_dir).checkpoints(), name_) {}

RunMember::~RunMember() = default;

absl::Status RunMember::FindCheckpoints() {
  RV_RETURN_IF_ERROR(MakeFolders(RunPaths(options_.run_dir).checkpoints()));
  RV_ASSIGN_OR_RETURN(CheckpointStore::Listing listing, store_.List());
  found_ = std::move(listing.whole);
  damaged_ = std::move(listing.damaged);
  for (const std::string& line : damaged_) spdlog::warn("{}", line);
  if (!found_.empty() && !options_.resume) {
    return absl::AlreadyExistsError(absl::StrCat(
        options_.run_dir, " holds checkpoints of ", RoleName(options_.role),
        " ", options_.index,
        ": add --resume to go on from them, or take another --run-dir"));
  }
  return absl::OkStatus();
}

absl::Status RunMember::Join(const std::string& manifest_hash,
                             const std::string& address) {
  // The run folder's config.yaml of `rivulet train` has it.
  if (absl::EndsWith(config_.cluster.controller, ":0")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.controller: found ", config_.cluster.controller,
        ", which lets the controller pick a port; allowed: the address that it "
        "then says it listens on"));
  }
  manifest_hash_ = manifest_hash;
  SessionClient::Options join;
  join.controller = config_.cluster.controller;
  join.connect = options_.connect;
  join.join_timeout = config_.cluster.join_timeout;
  // Three may get lost before the lease lapses.
  join.heartbeat_every = config_.cluster.lease / 4;
  join.patience = config_.cluster.lease;
  join.cancelled = options_.stop_requested;
  v1::Hello& hello = join.hello;
  hello.set_protocol_min(kOldestProtocolVersion);
  hello.set_protocol_max(kProtocolVersion);
  hello.set_role(options_.role);
  hello.set_index(static_cast<uint32_t>(options_.index));
  hello.set_config_hash(config_hash_);
  hello.set_config(canonical_config_);
  hello.set_manifest_hash(manifest_hash_);
  hello.set_address(address);
  hello.set_host(HostName());
  hello.set_machine(MachineId());
  hello.set_resume(options_.resume);
  for (const CheckpointStore::Found& found : found_) {
    hello.add_checkpoints(static_cast<uint64_t>(found.step));
  }
  if (options_.resume) {
    for (const std::string& line : damaged_) hello.add_notes(Printable(line));
  }
  if (!found_.empty()) {
    const std::map<std::string, std::string>& newest = found_.front().metadata;
    const auto job = newest.find("job");
    if (job != newest.end()) hello.set_job(job->second);
  }
  spdlog::info("looking for the controller at {}", join.controller);
  RV_ASSIGN_OR_RETURN(session_, SessionClient::Join(std::move(join)));
  spdlog::info("joined {} as incarnation {}", config_.cluster.controller,
               session_->welcome().incarnation());
  SetLogIdentity(session_->welcome().job(), session_->welcome().incarnation());
  watcher_ = std::make_unique<StopWatcher>(options_.stop_requested, [this] {
    spdlog::info("told to stop: asking the controller");
    v1::DaemonMessage message;
    message.mutable_stop()->set_reason(
        absl::StrCat(name_, " was told to stop"));
    session_->Send(std::move(message));
  });
  return absl::OkStatus();
}

std::map<std::string, std::string> RunMember::Identity(int64_t step) const {
  return {{"kind", RoleName(options_.role)},
          {"job", session_->welcome().job()},
          {"member", absl::StrCat(options_.index)},
          {"step", absl::StrCat(step)},
          {"config_hash", ConfigHash(config_, /*for_resume=*/true)},
          {"manifest_hash", manifest_hash_}};
}

absl::Status RunMember::BeginAt(int64_t step) {
  SetLogStep(step);
  return store_.SetAsideAfter(step);
}

absl::StatusOr<TensorFile> RunMember::LoadCheckpoint(int64_t step) {
  RV_ASSIGN_OR_RETURN(TensorFile file, store_.Load(step));
  for (const auto& [key, expected] : Identity(step)) {
    const auto found = file.metadata.find(key);
    if (found == file.metadata.end() || found->second != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          store_.PathOf(step), ": the checkpoint belongs to another run: its ",
          key, " is ", found == file.metadata.end() ? "missing" : found->second,
          ", expected ", expected));
    }
  }
  // Older sets that this run may still fall back to; newer ones never became
  // complete.
  saved_.clear();
  for (auto it = found_.rbegin(); it != found_.rend(); ++it) {
    if (it->step <= step) saved_.push_back(it->step);
  }
  return file;
}

std::string RunMember::PathOfCheckpoint(int64_t step) const {
  return store_.PathOf(step);
}

absl::Status RunMember::SaveCheckpoint(int64_t step, TensorFile state) {
  const absl::Time start = absl::Now();
  for (auto& [key, value] : Identity(step)) state.metadata[key] = value;
  RV_RETURN_IF_ERROR(store_.Save(step, std::move(state)));
  saved_.push_back(step);
  while (static_cast<int64_t>(saved_.size()) > config_.checkpoint.keep + 1) {
    saved_.pop_front();
  }
  spdlog::info("saved checkpoint {} in {}", step,
               absl::FormatDuration(
                   absl::Trunc(absl::Now() - start, absl::Milliseconds(1))));
  return store_.Prune({saved_.begin(), saved_.end()});
}

absl::Status RunMember::Conclude(const absl::Status& own) {
  if (own.ok()) return session_->WaitForFinish();
  absl::Status verdict;
  if (session_->Ended(&verdict) ||
      (MayBeEcho(own) && EndsWithin(kReasonGrace, &verdict))) {
    return verdict.ok() ? own : verdict;
  }
  spdlog::error("giving up: {}", own.ToString());
  v1::DaemonMessage message;
  message.mutable_failure()->set_code(static_cast<int32_t>(own.code()));
  message.mutable_failure()->set_message(std::string(own.message()));
  session_->Send(std::move(message));
  if (EndsWithin(kVerdictTimeout, &verdict) && !verdict.ok()) return verdict;
  return own;
}

bool RunMember::EndsWithin(absl::Duration timeout, absl::Status* verdict) {
  const auto ended = std::make_shared<Notification>();
  session_->OnEnd([ended](const absl::Status&) { ended->Notify(); });
  ended->WaitForNotificationWithTimeout(timeout);
  return session_->Ended(verdict);
}

}  // namespace rivulet
