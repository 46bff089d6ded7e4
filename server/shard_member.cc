#include "server/shard_member.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/daemon/logging.h"

namespace rivulet {
namespace {

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

}  // namespace

ShardMember::ShardMember(const Config& config, RunMember::Options options)
    : config_(config),
      shard_(options.index),
      member_(config, std::move(options)) {}

absl::Status ShardMember::Prepare() {
  RV_ASSIGN_OR_RETURN(plan_, RunPlan::Create(config_));
  RV_ASSIGN_OR_RETURN(core_, ShardCore::Create(plan_, shard_));
  return member_.FindCheckpoints();
}

absl::Status ShardMember::Join(const std::string& address) {
  return member_.Join(plan_->manifest_hash(), address);
}

absl::Status ShardMember::Begin(ExchangeStreams* hub) {
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
  control_ = std::make_unique<SessionControl>(&session, config_.cluster.lease);
  loop_.emplace(core_.get(), hub, control_.get(), std::move(exchange));
  session.SetStep(start.step());
  spdlog::info("serving from step {} of {}: {} segments, {} parameters",
               start.step(), plan_->total_steps(), core_->segments().size(),
               plan_->partition().elements_of_shard(shard_));
  return absl::OkStatus();
}

absl::Status ShardMember::LoadState(int64_t step) {
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

bool ShardMember::Ended(absl::Status* verdict) const {
  return member_.session().Ended(verdict);
}

void ShardMember::OnEnd(std::function<void(const absl::Status&)> callback) {
  member_.session().OnEnd(std::move(callback));
}

absl::Status ShardMember::Conclude(const absl::Status& own) {
  return member_.Conclude(own);
}

}  // namespace rivulet
