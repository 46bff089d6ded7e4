#include "server/shard_daemon.h"

#include <spdlog/spdlog.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_member.h"
#include "server/exchange_loop.h"
#include "server/listen.h"
#include "server/shard_core.h"
#include "server/shard_service.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
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
  void SetStep(uint64_t step) override {
    session_->SetStep(step);
    SetLogStep(static_cast<int64_t>(step));
  }

 private:
  SessionClient* const session_;
  const absl::Duration entry_timeout_;
};

class Shard {
 public:
  Shard(const Config& config, const ShardOptions& options)
      : config_(config),
        options_(options),
        member_(config, {.role = v1::ROLE_SHARD,
                         .index = options.shard,
                         .run_dir = options.run_dir,
                         .resume = options.resume,
                         .stop_requested = options.stop_requested}) {}
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  ~Shard() {
    if (service_.has_value()) service_->hub().Stop();
    if (listener_.server == nullptr) return;
    listener_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(200));
    listener_.server->Wait();
  }

  absl::Status Run() {
    RV_RETURN_IF_ERROR(Prepare());
    RV_ASSIGN_OR_RETURN(listener_, Listen(config_.local.listen, "local.listen",
                                          &*service_, config_.cluster.lease));
    if (options_.on_listening) options_.on_listening(listener_.address);
    RV_ASSIGN_OR_RETURN(const std::string address, AdvertisedAddress());
    RV_RETURN_IF_ERROR(member_.Join(plan_->manifest_hash(), address));
    spdlog::info("listening on {}", listener_.address);
    absl::Status result = member_.Conclude(Serve());
    LetWorkersLeave();
    return result;
  }

 private:
  // All that can fail without anybody else.
  absl::Status Prepare() {
    RV_ASSIGN_OR_RETURN(plan_, RunPlan::Create(config_));
    RV_ASSIGN_OR_RETURN(core_, ShardCore::Create(plan_, options_.shard));
    service_.emplace(ExchangeLimits(*core_));
    return member_.FindCheckpoints();
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

  // From the start to the verdict.
  absl::Status Serve() {
    SessionClient& session = member_.session();
    RV_ASSIGN_OR_RETURN(const v1::Start start, session.WaitForStart());
    RV_RETURN_IF_ERROR(member_.BeginAt(static_cast<int64_t>(start.step())));
    RV_RETURN_IF_ERROR(LoadState(static_cast<int64_t>(start.step())));
    ExchangeOptions exchange;
    exchange.job = session.welcome().job();
    exchange.config_hash = member_.config_hash();
    exchange.manifest_hash = plan_->manifest_hash();
    // The first entry is the view that everybody begins with; what follows it
    // holds from later boundaries.
    if (start.entries_size() > 0) {
      exchange.schedule_seq = start.entries(0).seq();
      RV_RETURN_IF_ERROR(core_->SetView(start.entries(0).view()));
    }
    exchange.save = [this](int64_t step, TensorFile state) {
      return member_.SaveCheckpoint(step, std::move(state));
    };
    control_.emplace(&session, config_.cluster.lease);
    loop_.emplace(core_.get(), &service_->hub(), &*control_,
                  std::move(exchange));
    session.SetStep(start.step());
    spdlog::info("serving from step {} of {}: {} segments, {} parameters",
                 start.step(), plan_->total_steps(), core_->segments().size(),
                 plan_->partition().elements_of_shard(options_.shard));
    absl::Status verdict;
    while (!session.Ended(&verdict)) {
      auto event = service_->hub().Next(kPoll);
      if (event.has_value())
        RV_RETURN_IF_ERROR(loop_->Handle(*std::move(event)));
      loop_->Tick(absl::Now());
    }
    return verdict;
  }

  absl::Status LoadState(int64_t step) {
    if (step == 0) return absl::OkStatus();
    RV_ASSIGN_OR_RETURN(const TensorFile file, member_.LoadCheckpoint(step));
    const std::string path = member_.PathOfCheckpoint(step);
    RV_RETURN_IF_ERROR(Annotate(core_->Load(file), path));
    if (core_->version() != step) {
      return absl::DataLossError(absl::StrCat(
          path, ": its version is ", core_->version(), ", expected ", step));
    }
    return absl::OkStatus();
  }

  // After an orderly end the streams close from the workers' side.
  void LetWorkersLeave() {
    const absl::Time deadline = absl::Now() + kLeaveGrace;
    while (loop_.has_value() && loop_->finished() &&
           service_->hub().num_streams() > 0 && absl::Now() < deadline) {
      auto event = service_->hub().Next(kPoll);
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
  std::shared_ptr<const RunPlan> plan_;
  std::unique_ptr<ShardCore> core_;
  std::optional<ShardService> service_;  // outlives the server
  Listener listener_;
  RunMember member_;
  std::optional<SessionControl> control_;
  std::optional<ExchangeLoop> loop_;
};

}  // namespace

absl::Status RunShard(const Config& config, const ShardOptions& options) {
  return Shard(config, options).Run();
}

}  // namespace rivulet
