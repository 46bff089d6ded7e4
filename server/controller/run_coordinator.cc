#include "server/controller/run_coordinator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/checkpoint_store.h"
#include "common/daemon/digest.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/text_file.h"
#include "common/daemon/utf8.h"
#include "models/checkpoint/atomic_file.h"
#include "models/checkpoint/tensor_file.h"
#include "server/controller/complete_markers.h"
#include "server/controller/progress_file.h"

namespace rivulet {
namespace {

// Ticks come every 50 ms or so.
constexpr absl::Duration kLateTick = absl::Seconds(1);

constexpr size_t kMostNotices = 16;
constexpr absl::Duration kSayMissingEvery = absl::Seconds(10);

MembershipOptions OptionsOf(const RunCoordinator::Parts& parts) {
  const ClusterConfig& cluster = parts.plan->config().cluster;
  return {.workers = static_cast<int>(cluster.workers),
          .shards = static_cast<int>(cluster.shards),
          .job = parts.job,
          .config = CanonicalConfig(parts.plan->config(),
                                    /*for_resume=*/false),
          .manifest_hash = parts.plan->manifest_hash(),
          .generation = parts.generation,
          .lease = parts.lease.value_or(cluster.lease)};
}

// A daemon's words, as much of them as belongs into files and messages.
std::string Excerpt(const std::string& text) {
  constexpr size_t kMaxBytes = 2000;
  return text.size() <= kMaxBytes
             ? Printable(text)
             : absl::StrCat(Printable(text.substr(0, kMaxBytes)), "...");
}

absl::Status StatusOf(const v1::Failure& failure) {
  // A failure without a code, or with one that nobody knows, is one still.
  // A member that was told to stop asks for it in another way: Cancelled would
  // pass for an orderly stop.
  const bool known =
      failure.code() > 0 && failure.code() <= 16 &&
      failure.code() != static_cast<int>(absl::StatusCode::kCancelled);
  return absl::Status(known ? static_cast<absl::StatusCode>(failure.code())
                            : absl::StatusCode::kUnknown,
                      Excerpt(failure.message()));
}

int64_t WireBytesOf(const google::protobuf::Message& message) {
  return WireBytes(static_cast<int64_t>(message.ByteSizeLong()));
}

}  // namespace

RunCoordinator::RunCoordinator(Parts parts, absl::Time now)
    : parts_(std::move(parts)),
      config_(parts_.plan->config()),
      membership_(OptionsOf(parts_)),
      notices_(parts_.notices),
      waiting_since_(now),
      last_tick_(now),
      weights_(parts_.plan) {}

void RunCoordinator::Handle(SessionStreams::Event event, absl::Time now) {
  if (!event.message.has_value()) {
    HandleLeft(event.stream);
    return;
  }
  if (ended()) {
    // Too late to be told with the others; left alone, it would wait. As a
    // member it takes the end for what it is, rather than dial again.
    if (!membership_.Find(event.stream).has_value()) {
      parts_.hub->Send(event.stream, LateWelcome(event.message->hello()));
      parts_.hub->Send(event.stream, FinishMessage());
      parts_.hub->End(event.stream, absl::OkStatus());
    }
    return;
  }
  if (event.message->has_hello()) {
    HandleHello(event.stream, *event.message, now);
    return;
  }
  const std::optional<MemberKey> key = membership_.Find(event.stream);
  if (!key.has_value()) {
    parts_.hub->End(event.stream, absl::InvalidArgumentError(
                                      "the first message must be a hello"));
    return;
  }
  membership_.Heard(event.stream, now);
  if (key->role == v1::ROLE_SHARD) {
    shard_bytes_up_ += WireBytesOf(*event.message);
  }
  HandleMember(*key, *event.message);
}

void RunCoordinator::SetStep(int64_t step) {
  if (metrics_.has_value()) metrics_->SetStep(static_cast<uint64_t>(step));
}

void RunCoordinator::HandleHello(StreamId stream,
                                 const v1::DaemonMessage& message,
                                 absl::Time now) {
  const auto refuse = [&](const absl::Status& status) {
    spdlog::warn("refused {}: {}", parts_.hub->Peer(stream),
                 std::string(status.message()));
    parts_.hub->End(stream, status);
  };
  if (membership_.Find(stream).has_value()) {
    refuse(absl::InvalidArgumentError("a second hello on one stream"));
    return;
  }
  const absl::StatusOr<Membership::Joined> joined =
      membership_.Join(stream, message.hello(), now);
  if (!joined.ok()) {
    refuse(joined.status());
    return;
  }
  parts_.hub->Admit(stream);
  if (joined->key.role == v1::ROLE_SHARD) {
    shard_bytes_up_ += WireBytesOf(message);
  }
  if (joined->superseded.has_value()) {
    parts_.hub->End(
        *joined->superseded,
        absl::AbortedError(absl::StrCat(
            "another ", MemberName(joined->key), " has joined from ",
            parts_.hub->Peer(stream), " and takes the place of this one")));
  }
  AddNotes(joined->key, message.hello());
  spdlog::info("{} joined from {} (incarnation {}); {}",
               membership_.Describe(joined->key), parts_.hub->Peer(stream),
               joined->incarnation, membership_.Missing());
  v1::ControllerMessage answer;
  v1::Welcome* welcome = answer.mutable_welcome();
  welcome->set_protocol(joined->protocol);
  welcome->set_job(parts_.job);
  welcome->set_generation(parts_.generation);
  welcome->set_incarnation(joined->incarnation);
  Send(stream, answer);
  if (membership_.Complete()) Begin(now);
}

void RunCoordinator::AddNotes(const MemberKey& key, const v1::Hello& hello) {
  for (const std::string& note : hello.notes()) {
    if (notices_.size() >= kMostNotices) return;
    std::string notice = absl::StrCat(MemberName(key), ": ", Excerpt(note));
    // Of a member that joins again.
    if (std::find(notices_.begin(), notices_.end(), notice) != notices_.end()) {
      continue;
    }
    notices_.push_back(std::move(notice));
  }
}

absl::StatusOr<int64_t> RunCoordinator::FirstStep() const {
  absl::StatusOr<int64_t> common = membership_.CommonCheckpoint();
  if (common.ok()) return common;
  RV_ASSIGN_OR_RETURN(const bool was_complete,
                      HasCompleteCheckpoint(parts_.paths));
  if (was_complete) return common;
  // The run went down while it saved its first set: what some have of it is of
  // no use, and refusing would keep the run from ever going on by itself.
  spdlog::warn("beginning at step 0, since no checkpoint was ever complete: {}",
               std::string(common.status().message()));
  return 0;
}

absl::Status RunCoordinator::WriteMissingConfig() const {
  const absl::StatusOr<std::string> there = ReadTextFile(parts_.paths.config());
  if (there.ok() && !there->empty()) return absl::OkStatus();
  return WriteFileAtomically(parts_.paths.config(), ToYaml(config_));
}

void RunCoordinator::Begin(absl::Time now) {
  const absl::StatusOr<int64_t> common = FirstStep();
  if (!common.ok()) {
    Fail(common.status());
    return;
  }
  first_step_ = *common;
  if (first_step_ >= parts_.plan->total_steps()) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint to go on from has done ", first_step_,
        " steps, and the config asks for ", parts_.plan->total_steps(),
        "; a larger train.epochs or train.max_steps goes on")));
    return;
  }
  // Its absence is made good only now that everybody's checkpoints have been
  // found to belong to this config.
  if (absl::Status status = WriteMissingConfig(); !status.ok()) {
    Fail(AsRunFolderError(status));
    return;
  }
  membership_.Seal();
  v1::ScheduleEntry entry;
  *entry.mutable_view() = membership_.CurrentView();
  const absl::StatusOr<v1::ScheduleEntry> view =
      parts_.log->Append(std::move(entry));
  if (!view.ok()) {
    Fail(view.status());
    return;
  }
  absl::StatusOr<MetricsFile> file =
      MetricsFile::Open(parts_.paths.metrics(), first_step_);
  if (!file.ok()) {
    Fail(AsRunFolderError(file.status()));
    return;
  }
  metrics_file_.emplace(*std::move(file));
  RunTotals earlier = parts_.earlier;
  if (parts_.earlier_unknown) earlier.counted_from = first_step_;
  metrics_.emplace(
      RunShape{.workers = static_cast<int>(config_.cluster.workers),
               .parameters = parts_.plan->manifest().num_parameters(),
               .steps_per_epoch = parts_.plan->steps_per_epoch(),
               .total_steps = parts_.plan->total_steps()},
      first_step_, earlier);
  checkpoints_.emplace(
      config_.checkpoint,
      static_cast<int>(config_.cluster.workers + config_.cluster.shards), now,
      first_step_);
  began_ = now;
  last_row_ = now;
  phase_ = Phase::kTraining;

  v1::ControllerMessage message;
  v1::Start* start = message.mutable_start();
  start->set_step(static_cast<uint64_t>(first_step_));
  for (const std::string& address : membership_.ShardAddresses()) {
    start->add_shard_addresses(address);
  }
  // What is before this view is history to those who begin now.
  *start->add_entries() = *view;
  for (StreamId stream : membership_.Streams()) {
    const int workers = membership_.WorkersBeside(*membership_.Find(stream));
    start->set_workers_on_machine(static_cast<uint32_t>(workers));
    Send(stream, message);
  }
  spdlog::info("everybody is here: training from step {} of {}, job {}",
               first_step_, parts_.plan->total_steps(), parts_.job);
}

void RunCoordinator::HandleMember(const MemberKey& key,
                                  const v1::DaemonMessage& message) {
  if (message.has_failure()) {
    Fail(Annotate(StatusOf(message.failure()), membership_.Describe(key)));
    return;
  }
  if (message.has_stop()) {
    Stop(absl::StrCat(Excerpt(message.stop().reason()), " (", MemberName(key),
                      ")"));
    return;
  }
  if (phase_ == Phase::kWaiting) return;  // heartbeats; nothing else is due
  const bool is_worker = key.role == v1::ROLE_WORKER;
  switch (message.kind_case()) {
    case v1::DaemonMessage::kHeartbeat:
      metrics_->SetStep(message.heartbeat().step());
      break;
    case v1::DaemonMessage::kReport:
      if (is_worker) metrics_->AddReport(key.index, message.report());
      break;
    case v1::DaemonMessage::kEvaluation:
      if (is_worker &&
          metrics_->AddEvaluation(key.index, message.evaluation())) {
        const Evaluation& e = *metrics_->last_evaluation();
        spdlog::info("step {}: test accuracy {:.4f}, test loss {:.4f}", e.step,
                     e.accuracy, e.loss);
        if (absl::Status status = WriteMetricsRow(); !status.ok()) Fail(status);
      }
      break;
    case v1::DaemonMessage::kCheckpointDone:
      HandleSaved(key, static_cast<int64_t>(message.checkpoint_done().step()));
      break;
    case v1::DaemonMessage::kWeights:
      if (is_worker) break;
      if (absl::Status status = weights_.Add(message.weights()); !status.ok()) {
        Fail(Annotate(status, membership_.Describe(key)));
      }
      break;
    case v1::DaemonMessage::kFinished:
      HandleFinished(key, message.finished());
      break;
    default:
      // A kind that a newer daemon may send and that this version can do
      // without.
      break;
  }
}

void RunCoordinator::HandleFinished(const MemberKey& key,
                                    const v1::Finished& finished) {
  if (membership_.finished(key)) return;
  membership_.SetFinished(key);
  if (key.role == v1::ROLE_WORKER) metrics_->AddFinished(key.index, finished);
  if (!finished.complete()) all_complete_ = false;
  phase_ = Phase::kFinishing;
  spdlog::info("{} has finished after {} steps", MemberName(key),
               finished.step());
  if (membership_.AllFinished()) Conclude();
}

void RunCoordinator::HandleSaved(const MemberKey& key, int64_t step) {
  if (!checkpoints_->Saved(key, step)) return;
  if (absl::Status status = MarkComplete(step); !status.ok()) {
    Fail(status);
    return;
  }
  spdlog::info("checkpoint of step {} is complete", step);
}

absl::Status RunCoordinator::MarkComplete(int64_t step) {
  RV_RETURN_IF_ERROR(MarkCheckpointComplete(parts_.paths, step, parts_.job,
                                            config_.checkpoint.keep));
  metrics_->SetShardTraffic(shard_bytes_up_, shard_bytes_down_);
  return WriteFileAtomically(parts_.paths.progress(),
                             ProgressJson(metrics_->Totals()));
}

void RunCoordinator::HandleLeft(StreamId stream) {
  const std::optional<MemberKey> key = membership_.Find(stream);
  // After the member's own end, or the run's, leaving is right.
  if (!key.has_value() || ended() || membership_.finished(*key)) {
    parts_.hub->End(stream, absl::OkStatus());
    return;
  }
  const std::string name = membership_.Describe(*key);
  parts_.hub->End(stream, absl::OkStatus());
  if (phase_ == Phase::kWaiting) {
    membership_.Leave(stream);
    spdlog::warn("{} left while the others are awaited; {}", name,
                 membership_.Missing());
    return;
  }
  Fail(absl::UnavailableError(absl::StrCat(name, " went away at step ",
                                           metrics_->step(),
                                           "; its own log says why")));
}

void RunCoordinator::Tick(absl::Time now) {
  // A machine that slept, or stood still, slept with its clocks: what nobody
  // could say in that time is nobody's silence.
  if (now - last_tick_ > kLateTick) membership_.Excuse(now - last_tick_);
  last_tick_ = now;
  if (phase_ == Phase::kWaiting) {
    TickWaiting(now);
  } else if (!ended()) {
    TickRunning(now);
  }
}

void RunCoordinator::TickWaiting(absl::Time now) {
  for (const MemberKey& key : membership_.Silent(now)) {
    const StreamId stream = membership_.StreamOf(key);
    spdlog::warn("{} has been silent for {}", membership_.Describe(key),
                 absl::FormatDuration(config_.cluster.lease));
    membership_.Leave(stream);
    parts_.hub->End(stream, absl::DeadlineExceededError(
                                "silent beyond cluster.lease while waiting"));
  }
  if (now - waiting_since_ >= config_.cluster.join_timeout) {
    Fail(absl::DeadlineExceededError(
        absl::StrCat("not everybody has joined within ",
                     absl::FormatDuration(config_.cluster.join_timeout),
                     " (cluster.join_timeout): ", membership_.Missing())));
    return;
  }
  if (now - said_missing_ >= kSayMissingEvery) {
    // Children of one command need a moment: the first word comes late.
    if (said_missing_ != absl::InfinitePast()) {
      spdlog::info("{}", membership_.Missing());
    }
    said_missing_ = now;
  }
}

void RunCoordinator::TickRunning(absl::Time now) {
  const std::vector<MemberKey> silent = membership_.Silent(now);
  if (!silent.empty()) {
    Fail(absl::UnavailableError(absl::StrCat(
        membership_.Describe(silent.front()), " has been silent for more than ",
        absl::FormatDuration(config_.cluster.lease), " (cluster.lease)")));
    return;
  }
  if (phase_ != Phase::kTraining) return;
  const int64_t step = metrics_->step();
  if (!stopping_ && step + 1 < parts_.plan->total_steps() &&
      checkpoints_->Due(now, step)) {
    v1::ScheduleEntry mark;
    mark.mutable_checkpoint();
    if (absl::Status status = AppendAndSend(std::move(mark)); !status.ok()) {
      Fail(status);
      return;
    }
    checkpoints_->Marked(now, step);
  }
  if (now - last_row_ >= config_.report.every) {
    last_row_ = now;
    if (absl::Status status = WriteMetricsRow(); !status.ok()) Fail(status);
  }
}

void RunCoordinator::Stop(const std::string& reason) {
  if (ended() || stopping_ || phase_ == Phase::kFinishing) return;
  spdlog::info("stopping: {}", reason);
  if (phase_ == Phase::kWaiting) {
    End(absl::CancelledError(absl::StrCat("stopped before it began: ", reason)),
        v1::RunStatus::STOPPED);
    return;
  }
  stopping_ = true;
  stop_reason_ = reason;
  v1::ScheduleEntry entry;
  entry.mutable_stop()->set_checkpoint(true);
  entry.mutable_stop()->set_reason(reason);
  if (absl::Status status = AppendAndSend(std::move(entry)); !status.ok()) {
    Fail(status);
  }
}

absl::Status RunCoordinator::AppendAndSend(v1::ScheduleEntry entry) {
  RV_ASSIGN_OR_RETURN(const v1::ScheduleEntry kept,
                      parts_.log->Append(std::move(entry)));
  v1::ControllerMessage message;
  *message.mutable_entry() = kept;
  for (StreamId stream : membership_.Streams()) Send(stream, message);
  return absl::OkStatus();
}

void RunCoordinator::Conclude() {
  RunOutcome outcome;
  if (!all_complete_) {
    outcome.status = "stopped";
    outcome.error = stop_reason_;
    if (absl::Status status = WriteEnd(outcome); !status.ok()) {
      Fail(status);
      return;
    }
    const absl::Status stopped = absl::CancelledError(absl::StrCat(
        "stopped at step ", metrics_->step(), " of ",
        parts_.plan->total_steps(), " with a checkpoint; --resume goes on (",
        stop_reason_, ")"));
    spdlog::info("{}", std::string(stopped.message()));
    End(stopped, v1::RunStatus::STOPPED);
    return;
  }
  absl::Status status = WriteWeights(&outcome.weights_sha256);
  outcome.status = "complete";
  if (status.ok()) status = WriteEnd(outcome);
  if (!status.ok()) {
    Fail(status);
    return;
  }
  spdlog::info("the run is complete: {}", parts_.paths.summary());
  End(absl::OkStatus(), v1::RunStatus::COMPLETE);
}

absl::Status RunCoordinator::WriteWeights(std::string* sha256) {
  RV_ASSIGN_OR_RETURN(const TensorFile file, weights_.Finish());
  RV_RETURN_IF_ERROR(WriteTensorFile(parts_.paths.weights(), file));
  RV_ASSIGN_OR_RETURN(*sha256, Sha256HexOfFile(parts_.paths.weights()));
  return absl::OkStatus();
}

absl::Status RunCoordinator::WriteMetricsRow() {
  metrics_->SetShardTraffic(shard_bytes_up_, shard_bytes_down_);
  const std::optional<MetricsRow> row = metrics_->TakeRow();
  return row.has_value() ? AsRunFolderError(metrics_file_->Append(*row))
                         : absl::OkStatus();
}

absl::Status RunCoordinator::WriteEnd(const RunOutcome& outcome) {
  RunOutcome whole = outcome;
  whole.job = parts_.job;
  RV_RETURN_IF_ERROR(WriteMetricsRow());
  RV_RETURN_IF_ERROR(WriteFileAtomically(parts_.paths.progress(),
                                         ProgressJson(metrics_->Totals())));
  return WriteFileAtomically(parts_.paths.summary(),
                             SummaryJson(*parts_.plan, *metrics_, whole));
}

void RunCoordinator::Fail(const absl::Status& status) {
  if (ended()) return;
  spdlog::error("the run has failed: {}", std::string(status.message()));
  // A run that never began leaves no summary: it can simply be started again.
  if (metrics_.has_value()) {
    RunOutcome outcome;
    outcome.status = "failed";
    outcome.error = std::string(status.message());
    if (absl::Status written = WriteEnd(outcome); !written.ok()) {
      spdlog::error("the summary could not be written: {}",
                    std::string(written.message()));
    }
  }
  End(status, v1::RunStatus::FAILED);
}

void RunCoordinator::End(const absl::Status& result,
                         v1::RunStatus::Phase phase) {
  result_ = result;
  ended_as_ = phase;
  phase_ = Phase::kEnded;
  const auto message = FinishMessage();
  for (StreamId stream : membership_.Streams()) {
    Send(stream, *message);
    parts_.hub->End(stream, absl::OkStatus());
  }
}

std::shared_ptr<const v1::ControllerMessage> RunCoordinator::FinishMessage()
    const {
  auto message = std::make_shared<v1::ControllerMessage>();
  message->mutable_finish()->set_code(static_cast<int>(result_.code()));
  message->mutable_finish()->set_message(std::string(result_.message()));
  return message;
}

std::shared_ptr<const v1::ControllerMessage> RunCoordinator::LateWelcome(
    const v1::Hello& hello) const {
  auto message = std::make_shared<v1::ControllerMessage>();
  v1::Welcome* welcome = message->mutable_welcome();
  welcome->set_protocol(std::min(kProtocolVersion, hello.protocol_max()));
  welcome->set_job(parts_.job);
  welcome->set_generation(parts_.generation);
  return message;
}

void RunCoordinator::Send(StreamId stream,
                          const v1::ControllerMessage& message) {
  const std::optional<MemberKey> key = membership_.Find(stream);
  if (key.has_value() && key->role == v1::ROLE_SHARD) {
    shard_bytes_down_ += WireBytesOf(message);
  }
  parts_.hub->Send(stream,
                   std::make_shared<const v1::ControllerMessage>(message));
}

v1::RunStatus RunCoordinator::Status(absl::Time now) const {
  v1::RunStatus status;
  status.set_total_steps(static_cast<uint64_t>(parts_.plan->total_steps()));
  status.set_test_accuracy(-1);
  status.set_seconds_left(-1);
  status.set_first_step(static_cast<uint64_t>(first_step_));
  status.mutable_notices()->Assign(notices_.begin(), notices_.end());
  if (metrics_.has_value()) metrics_->FillStatus(&status);
  switch (phase_) {
    case Phase::kWaiting:
      status.set_phase(v1::RunStatus::WAITING);
      status.set_message(membership_.Missing());
      break;
    case Phase::kTraining: {
      status.set_phase(v1::RunStatus::TRAINING);
      if (stopping_)
        status.set_message(absl::StrCat("stopping: ", stop_reason_));
      const int64_t done = metrics_->step() - first_step_;
      if (done > 0) {
        // Rounded, so that the status changes only when it says something new.
        status.set_seconds_left(static_cast<double>(absl::ToInt64Seconds(
            (now - began_) / done *
            (parts_.plan->total_steps() - metrics_->step()))));
      }
      break;
    }
    case Phase::kFinishing:
      status.set_phase(v1::RunStatus::FINISHING);
      break;
    case Phase::kEnded:
      status.set_phase(ended_as_);
      status.set_message(std::string(result_.message()));
      break;
  }
  return status;
}

}  // namespace rivulet
