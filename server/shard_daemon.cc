#include "server/shard_daemon.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/checkpoint_store.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/session_client.h"
#include "server/exchange_loop.h"
#include "server/listen.h"
#include "server/shard_core.h"
#include "server/shard_service.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// A stream that breaks is often but the echo of what ended the run: the
// controller has this long to tell the reason before this shard reports its
// own.
constexpr absl::Duration kReasonGrace = absl::Seconds(3);
// How long a shard that has failed waits for the verdict.
constexpr absl::Duration kVerdictTimeout = absl::Seconds(15);
// How long workers may take to leave after the end.
constexpr absl::Duration kLeaveGrace = absl::Seconds(2);

class SessionControl final : public ShardControl {
 public:
  SessionControl(SessionClient* session, absl::Duration entry_timeout)
      : session_(session), entry_timeout_(entry_timeout) {}

  uint64_t NewestSeq() const override { return session_->newest_seq(); }
  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(uint64_t seq) override {
    return session_->WaitForEntry(seq, entry_timeout_);
  }
  void Send(v1::DaemonMessage message) override {
    session_->Send(std::move(message));
  }
  void SetStep(uint64_t step) override { session_->SetStep(step); }
  v1::Traffic Traffic() const override {
    v1::Traffic traffic;
    traffic.set_wire_up(static_cast<uint64_t>(session_->sent().wire()));
    traffic.set_wire_down(static_cast<uint64_t>(session_->received().wire()));
    return traffic;
  }

 private:
  SessionClient* const session_;
  const absl::Duration entry_timeout_;
};

// Asks the controller to stop once `requested` says so.
class StopWatcher {
 public:
  StopWatcher(std::function<bool()> requested, SessionClient* session,
              std::string name)
      : requested_(std::move(requested)),
        session_(session),
        name_(std::move(name)) {
    if (requested_ != nullptr) thread_ = std::thread([this] { Watch(); });
  }
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;
  ~StopWatcher() {
    done_.Notify();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Watch() {
    while (!requested_()) {
      if (done_.WaitForNotificationWithTimeout(kPoll)) return;
    }
    spdlog::info("told to stop: asking the controller");
    v1::DaemonMessage message;
    message.mutable_stop()->set_reason(
        absl::StrCat(name_, " was told to stop"));
    session_->Send(std::move(message));
  }

  const std::function<bool()> requested_;
  SessionClient* const session_;
  const std::string name_;
  Notification done_;
  std::thread thread_;
};

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

class Shard {
 public:
  Shard(const Config& config, const ShardOptions& options)
      : config_(config),
        options_(options),
        name_(absl::StrCat("shard-", options.shard)),
        store_(RunPaths(options.run_dir).checkpoints(), name_),
        config_hash_(ConfigHash(config, /*for_resume=*/false)) {}
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  ~Shard() {
    service_.hub().Stop();
    if (listener_.server == nullptr) return;
    listener_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::seconds(1));
    listener_.server->Wait();
  }

  absl::Status Run() {
    RV_RETURN_IF_ERROR(Prepare());
    RV_ASSIGN_OR_RETURN(
        listener_, Listen(config_.local.listen, "local.listen", &service_));
    RV_RETURN_IF_ERROR(Join());
    absl::Status result;
    {
      const StopWatcher watcher(options_.stop_requested, session_.get(), name_);
      result = Conclude(Serve());
    }
    LetWorkersLeave();
    return result;
  }

 private:
  // All that can fail without anybody else.
  absl::Status Prepare() {
    RV_ASSIGN_OR_RETURN(plan_, RunPlan::Create(config_));
    RV_ASSIGN_OR_RETURN(core_, ShardCore::Create(plan_, options_.shard));
    RV_RETURN_IF_ERROR(MakeFolders(RunPaths(options_.run_dir).checkpoints()));
    RV_ASSIGN_OR_RETURN(checkpoints_, store_.List());
    if (!checkpoints_.empty() && !options_.resume) {
      return absl::AlreadyExistsError(absl::StrCat(
          options_.run_dir, " holds checkpoints of shard ", options_.shard,
          ": add --resume to go on from them, or take another --run-dir"));
    }
    return absl::OkStatus();
  }

  // Where workers dial.
  absl::StatusOr<std::string> AdvertisedAddress() const {
    if (!config_.local.advertise.empty()) return config_.local.advertise;
    if (absl::StartsWith(listener_.address, "0.0.0.0:") ||
        absl::StartsWith(listener_.address, "[::]:")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "local.listen is ", config_.local.listen,
          ", which workers cannot dial: write local.advertise, this machine's "
          "host:port as the workers see it"));
    }
    return listener_.address;
  }

  absl::Status Join() {
    SessionClient::Options join;
    join.controller = config_.cluster.controller;
    join.join_timeout = config_.cluster.join_timeout;
    // Three may get lost before the lease lapses.
    join.heartbeat_every = config_.cluster.lease / 4;
    join.cancelled = options_.stop_requested;
    v1::Hello& hello = join.hello;
    hello.set_protocol_min(kOldestProtocolVersion);
    hello.set_protocol_max(kProtocolVersion);
    hello.set_role(v1::ROLE_SHARD);
    hello.set_index(static_cast<uint32_t>(options_.shard));
    hello.set_config_hash(config_hash_);
    hello.set_manifest_hash(plan_->manifest_hash());
    RV_ASSIGN_OR_RETURN(*hello.mutable_address(), AdvertisedAddress());
    hello.set_host(HostName());
    hello.set_resume(options_.resume);
    for (const int64_t step : checkpoints_) {
      hello.add_checkpoints(static_cast<uint64_t>(step));
    }
    if (!checkpoints_.empty()) {
      RV_ASSIGN_OR_RETURN(const TensorFile newest,
                          store_.Load(checkpoints_.front()));
      const auto job = newest.metadata.find("job");
      if (job != newest.metadata.end()) hello.set_job(job->second);
    }
    RV_ASSIGN_OR_RETURN(session_, SessionClient::Join(std::move(join)));
    spdlog::info("joined {} as incarnation {}; listening on {}",
                 config_.cluster.controller, session_->welcome().incarnation(),
                 listener_.address);
    return absl::OkStatus();
  }

  // From the start to the verdict.
  absl::Status Serve() {
    RV_ASSIGN_OR_RETURN(const v1::Start start, session_->WaitForStart());
    RV_RETURN_IF_ERROR(LoadState(static_cast<int64_t>(start.step())));
    ExchangeOptions exchange;
    exchange.job = session_->welcome().job();
    exchange.config_hash = config_hash_;
    exchange.manifest_hash = plan_->manifest_hash();
    for (const v1::ScheduleEntry& entry : start.entries()) {
      exchange.schedule_seq = entry.seq();
      // Earlier views are history.
      if (entry.has_view() && entry.seq() == start.entries().rbegin()->seq()) {
        RV_RETURN_IF_ERROR(core_->SetView(entry.view()));
      }
    }
    exchange.save = [this](int64_t step, TensorFile state) {
      return SaveState(step, std::move(state));
    };
    control_.emplace(session_.get(), config_.cluster.lease);
    loop_.emplace(core_.get(), &service_.hub(), &*control_,
                  std::move(exchange));
    session_->SetStep(start.step());
    spdlog::info("serving from step {} of {}: {} segments, {} parameters",
                 start.step(), plan_->total_steps(), core_->segments().size(),
                 plan_->partition().elements_of_shard(options_.shard));
    absl::Status verdict;
    while (!session_->Ended(&verdict)) {
      auto event = service_.hub().Next(kPoll);
      if (event.has_value())
        RV_RETURN_IF_ERROR(loop_->Handle(*std::move(event)));
    }
    return verdict;
  }

  absl::Status LoadState(int64_t step) {
    if (step == 0) return absl::OkStatus();
    RV_ASSIGN_OR_RETURN(const TensorFile file, store_.Load(step));
    const absl::Status status = [&] {
      for (const auto& [key, expected] : Identity(step)) {
        const auto found = file.metadata.find(key);
        if (found == file.metadata.end() || found->second != expected) {
          return absl::FailedPreconditionError(absl::StrCat(
              "the checkpoint belongs to another run: its ", key, " is ",
              found == file.metadata.end() ? "missing" : found->second,
              ", expected ", expected));
        }
      }
      return core_->Load(file);
    }();
    RV_RETURN_IF_ERROR(Annotate(status, store_.PathOf(step)));
    if (core_->version() != step) {
      return absl::DataLossError(
          absl::StrCat(store_.PathOf(step), ": its version is ",
                       core_->version(), ", expected ", step));
    }
    // Older sets that this run may still fall back to; newer ones never became
    // complete.
    for (auto it = checkpoints_.rbegin(); it != checkpoints_.rend(); ++it) {
      if (*it <= step) saved_.push_back(*it);
    }
    return absl::OkStatus();
  }

  std::map<std::string, std::string> Identity(int64_t step) const {
    return {{"kind", "shard"},
            {"job", session_->welcome().job()},
            {"member", absl::StrCat(options_.shard)},
            {"step", absl::StrCat(step)},
            {"config_hash", ConfigHash(config_, /*for_resume=*/true)},
            {"manifest_hash", plan_->manifest_hash()}};
  }

  // The set that is being made is not complete yet: the newest checkpoint.keep
  // before it stay as well.
  absl::Status SaveState(int64_t step, TensorFile state) {
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

  // Tells the controller how it went here and returns how the run went.
  absl::Status Conclude(const absl::Status& own) {
    absl::Status verdict;
    if (session_->Ended(&verdict)) return own.ok() ? verdict : own;
    if (absl::IsUnavailable(own) && EndsWithin(kReasonGrace, &verdict)) {
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

  bool EndsWithin(absl::Duration timeout, absl::Status* verdict) {
    const auto ended = std::make_shared<Notification>();
    session_->OnEnd([ended](const absl::Status&) { ended->Notify(); });
    ended->WaitForNotificationWithTimeout(timeout);
    return session_->Ended(verdict);
  }

  // After an orderly end the streams close from the workers' side.
  void LetWorkersLeave() {
    const absl::Time deadline = absl::Now() + kLeaveGrace;
    while (loop_.has_value() && loop_->finished() &&
           service_.hub().num_streams() > 0 && absl::Now() < deadline) {
      auto event = service_.hub().Next(kPoll);
      if (!event.has_value()) continue;
      if (absl::Status status = loop_->Handle(*std::move(event));
          !status.ok()) {
        spdlog::warn("after the end: {}", status.ToString());
        return;
      }
    }
  }

  const Config config_;
  const ShardOptions options_;
  const std::string name_;
  CheckpointStore store_;
  const std::string config_hash_;
  std::shared_ptr<const RunPlan> plan_;
  std::unique_ptr<ShardCore> core_;
  std::vector<int64_t> checkpoints_;  // found at the start, newest first
  std::deque<int64_t> saved_;         // kept, oldest first
  ShardService service_;              // outlives the server
  Listener listener_;
  std::unique_ptr<SessionClient> session_;
  std::optional<SessionControl> control_;
  std::optional<ExchangeLoop> loop_;
};

}  // namespace

absl::Status RunShard(const Config& config, const ShardOptions& options) {
  return Shard(config, options).Run();
}

}  // namespace rivulet
