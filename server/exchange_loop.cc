#include "server/exchange_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/join_first.h"
#include "common/base/status_macros.h"
#include "common/daemon/grpc_util.h"

namespace rivulet {
namespace {

// A sequence number this far beyond what the controller has sent cannot be one
// that is merely on its way here.
constexpr uint64_t kMaxEntriesAhead = 1024;

constexpr absl::Duration kSayWaitingEvery = absl::Seconds(10);
constexpr size_t kMostNamed = 8;  // of the workers in a message

std::string BytesOf(absl::Span<const float> values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

// Splits `size` bytes into pieces of kChunkBytes, at least one.
int64_t NumPieces(size_t size) {
  const int64_t bytes = static_cast<int64_t>(size);
  return std::max<int64_t>(1, (bytes + kChunkBytes - 1) / kChunkBytes);
}

absl::Status Mismatch(const char* what, const std::string& ours,
                      const std::string& theirs) {
  return absl::FailedPreconditionError(
      absl::StrCat("another ", what, ": this shard has ", ours, ", the worker ",
                   theirs.empty() ? "none" : theirs));
}

}  // namespace

std::vector<std::shared_ptr<const v1::ShardMessage>> UpdateMessages(
    const ShardUpdate& update) {
  std::vector<std::shared_ptr<const v1::ShardMessage>> messages;
  const int64_t pieces = NumPieces(update.bytes.size());
  for (int64_t i = 0; i < pieces; ++i) {
    auto message = std::make_shared<v1::ShardMessage>();
    v1::Update* piece = message->mutable_update();
    piece->set_step(static_cast<uint64_t>(update.step));
    piece->set_data(update.bytes.substr(static_cast<size_t>(i * kChunkBytes),
                                        static_cast<size_t>(kChunkBytes)));
    if (i + 1 == pieces) *piece->mutable_end() = update.end;
    messages.push_back(std::move(message));
  }
  return messages;
}

std::vector<std::shared_ptr<const v1::ShardMessage>> StatisticsMessages(
    int64_t step, absl::Span<const float> values) {
  std::vector<std::shared_ptr<const v1::ShardMessage>> messages;
  const std::string bytes = BytesOf(values);
  const int64_t pieces = NumPieces(bytes.size());
  for (int64_t i = 0; i < pieces; ++i) {
    auto message = std::make_shared<v1::ShardMessage>();
    v1::Statistics* piece = message->mutable_statistics();
    piece->set_step(static_cast<uint64_t>(step));
    piece->set_data(bytes.substr(static_cast<size_t>(i * kChunkBytes),
                                 static_cast<size_t>(kChunkBytes)));
    piece->set_last(i + 1 == pieces);
    messages.push_back(std::move(message));
  }
  return messages;
}

ExchangeLoop::ExchangeLoop(ShardCore* core, ExchangeStreams* hub,
                           ShardControl* control, ExchangeOptions options)
    : core_(core),
      hub_(hub),
      control_(control),
      options_(std::move(options)),
      buffer_elements_(core->plan().manifest().num_buffer_elements()),
      statistics_(buffer_elements_,
                  static_cast<int>(core->plan().config().cluster.workers)),
      schedule_seq_(options_.schedule_seq) {}

absl::Status ExchangeLoop::Handle(ExchangeStreams::Event event) {
  if (!event.message.has_value()) {
    HandleLeft(event.stream, event.reason.ok()
                                 ? "it closed its stream"
                                 : std::string(event.reason.message()));
    return absl::OkStatus();
  }
  absl::Status status = HandleMessage(event.stream, *std::move(event.message));
  RV_RETURN_IF_ERROR(fatal_);
  if (status.ok()) return status;
  spdlog::warn("stream from {} ended: {}", hub_->Peer(event.stream),
               status.ToString());
  // First, because the first end of a stream counts.
  hub_->End(event.stream, status);
  HandleLeft(event.stream, std::string(status.message()));
  return absl::OkStatus();
}

void ExchangeLoop::Tick(absl::Time now) {
  const bool waits =
      !finished_ && core_->num_committed() > 0 && !core_->Ready();
  const int64_t step = waits ? core_->version() : -1;
  if (step != waiting_step_) {
    waiting_step_ = step;
    waiting_since_ = now;
    say_at_ = now + kSayWaitingEvery;
  }
  if (!waits || now < say_at_) return;
  say_at_ += kSayWaitingEvery;
  spdlog::warn(
      "step {} has waited {} for the push of worker {}", step,
      absl::FormatDuration(absl::Trunc(now - waiting_since_, absl::Seconds(1))),
      JoinFirst(core_->Awaited(), kMostNamed, ", "));
}

void ExchangeLoop::HandleLeft(StreamId stream, const std::string& reason) {
  hub_->End(stream, absl::OkStatus());
  const auto it = workers_.find(stream);
  if (it == workers_.end()) return;
  const int rank = it->second.rank;
  workers_.erase(it);
  const auto current = by_rank_.find(rank);
  if (current == by_rank_.end() || current->second != stream) return;
  by_rank_.erase(current);
  if (finished_) return;
  spdlog::warn("worker {} left at step {}: {}", rank, core_->version(), reason);
}

absl::Status ExchangeLoop::HandleMessage(StreamId stream,
                                         v1::WorkerMessage message) {
  const auto it = workers_.find(stream);
  if (message.has_hello()) {
    if (it != workers_.end()) {
      return absl::InvalidArgumentError("a second hello on one stream");
    }
    return HandleHello(stream, message.hello());
  }
  if (it == workers_.end()) {
    return absl::InvalidArgumentError("the first message must be a hello");
  }
  const Worker& worker = it->second;
  RV_RETURN_IF_ERROR(core_->Admit(worker.rank, worker.incarnation));
  switch (message.kind_case()) {
    case v1::WorkerMessage::kPush: {
      RV_ASSIGN_OR_RETURN(
          std::optional<WholePush> push,
          worker.assembler->Add(std::move(*message.mutable_push())));
      if (!push.has_value()) return absl::OkStatus();
      return HandlePush(stream, worker, *std::move(push));
    }
    case v1::WorkerMessage::kBoundary: {
      const v1::Boundary& boundary = message.boundary();
      if (boundary.schedule_seq() <= schedule_seq_) return absl::OkStatus();
      const auto version = static_cast<uint64_t>(core_->version());
      if (version == 0 || boundary.step() != version - 1) {
        return absl::FailedPreconditionError(
            absl::StrCat("boundary after step ", boundary.step(),
                         ", this shard collects ", core_->version()));
      }
      RV_RETURN_IF_ERROR(CheckMayAdvance(boundary.schedule_seq()));
      return AdvanceSchedule(boundary.schedule_seq());
    }
    case v1::WorkerMessage::kStatistics: {
      if (core_->shard() != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "statistics go to shard 0, this is shard ", core_->shard()));
      }
      RV_ASSIGN_OR_RETURN(
          std::optional<WholeStatistics> whole,
          worker.assembler->Add(std::move(*message.mutable_statistics())));
      if (!whole.has_value()) return absl::OkStatus();
      return HandleStatistics(worker, *whole);
    }
    default:
      return absl::InvalidArgumentError("an empty or unknown message");
  }
}

absl::Status ExchangeLoop::HandleHello(StreamId stream,
                                       const v1::ExchangeHello& hello) {
  if (hello.protocol_min() > kProtocolVersion ||
      hello.protocol_max() < kOldestProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no common protocol version: this shard speaks ",
        kOldestProtocolVersion, " to ", kProtocolVersion, ", the worker ",
        hello.protocol_min(), " to ", hello.protocol_max()));
  }
  if (hello.job() != options_.job) {
    return Mismatch("job", options_.job, absl::CHexEscape(hello.job()));
  }
  if (hello.config_hash() != options_.config_hash) {
    return Mismatch("config", options_.config_hash,
                    absl::CHexEscape(hello.config_hash()));
  }
  if (hello.manifest_hash() != options_.manifest_hash) {
    return Mismatch("model", options_.manifest_hash,
                    absl::CHexEscape(hello.manifest_hash()));
  }
  if (hello.next_step() != static_cast<uint64_t>(core_->version())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", hello.rank(), " goes on with step ", hello.next_step(),
        ", shard ", core_->shard(), " with step ", core_->version()));
  }
  if (hello.rank() > 1023) {
    return absl::OutOfRangeError(
        absl::StrCat("worker ", hello.rank(), ": ranks are below 1024"));
  }
  const int rank = static_cast<int>(hello.rank());
  RV_RETURN_IF_ERROR(core_->Admit(rank, hello.incarnation()));

  if (const auto old = by_rank_.find(rank); old != by_rank_.end()) {
    workers_.erase(old->second);
    hub_->End(old->second,
              absl::AbortedError(absl::StrCat(
                  "worker ", rank, " has connected again, as incarnation ",
                  hello.incarnation())));
  }
  by_rank_[rank] = stream;
  Worker& worker = workers_[stream];
  worker.rank = rank;
  worker.incarnation = hello.incarnation();
  worker.assembler = std::make_unique<PushAssembler>(core_->max_push_bytes(),
                                                     4 * buffer_elements_);
  auto answer = std::make_shared<v1::ShardMessage>();
  v1::ExchangeWelcome* welcome = answer->mutable_welcome();
  welcome->set_protocol(std::min(kProtocolVersion, hello.protocol_max()));
  welcome->set_shard(static_cast<uint32_t>(core_->shard()));
  welcome->set_version(static_cast<uint64_t>(core_->version()));
  hub_->Admit(stream);
  hub_->Send(stream, std::move(answer));
  spdlog::info("worker {} connected from {} (incarnation {}, step {})", rank,
               hub_->Peer(stream), worker.incarnation, core_->version());
  return absl::OkStatus();
}

absl::Status ExchangeLoop::HandlePush(StreamId stream, const Worker& worker,
                                      WholePush push) {
  if (push.commit.schedule_seq() > schedule_seq_) {
    if (push.step != core_->version()) {
      return absl::FailedPreconditionError(
          absl::StrCat("push of step ", push.step, " under schedule ",
                       push.commit.schedule_seq(), ", this shard collects ",
                       core_->version()));
    }
    RV_RETURN_IF_ERROR(CheckMayAdvance(push.commit.schedule_seq()));
    RV_RETURN_IF_ERROR(AdvanceSchedule(push.commit.schedule_seq()));
  } else if (push.step == core_->version() &&
             push.commit.schedule_seq() < schedule_seq_) {
    // The worker has passed a boundary without acting on it: its checkpoint, or
    // its end, would be missing.
    return absl::FailedPreconditionError(
        absl::StrCat("push of step ", push.step, " under schedule ",
                     push.commit.schedule_seq(), ", step ", push.step,
                     " is under ", schedule_seq_));
  }
  if (finished_) {
    return absl::FailedPreconditionError(
        absl::StrCat("push of step ", push.step,
                     ": this shard ended before step ", core_->version()));
  }
  RV_ASSIGN_OR_RETURN(const PushResult result,
                      core_->SubmitPush(worker.rank, worker.incarnation,
                                        push.step, push.bytes, push.commit));
  if (result == PushResult::kRepeated) {
    spdlog::info("worker {} repeated its push of step {}", worker.rank,
                 push.step);
    if (const auto update = core_->FindUpdate(push.step)) {
      for (auto& message : UpdateMessages(*update)) {
        hub_->Send(stream, std::move(message));
      }
    }
    return absl::OkStatus();
  }
  if (push.commit.voided()) {
    spdlog::warn("worker {} voided step {}", worker.rank, push.step);
  }
  if (core_->Ready()) fatal_ = MakeAndSendUpdate();
  return absl::OkStatus();
}

absl::Status ExchangeLoop::MakeAndSendUpdate() {
  const bool last = core_->plan().IsLast(core_->version());
  // After the last step nothing holds any more, so nothing new is stamped.
  const bool stamps = core_->shard() == 0 && !last;
  const uint64_t seq =
      stamps ? std::max(schedule_seq_, control_->NewestSeq()) : schedule_seq_;
  RV_ASSIGN_OR_RETURN(const std::shared_ptr<const ShardUpdate> update,
                      core_->MakeUpdate(seq));
  for (const auto& message : UpdateMessages(*update)) {
    for (const auto& [rank, stream] : by_rank_) hub_->Send(stream, message);
  }
  control_->SetStep(static_cast<uint64_t>(core_->version()));
  if (last) return SendWeights();
  // Workers learn of this boundary from the update; so does this shard.
  if (stamps) return AdvanceSchedule(seq);
  return absl::OkStatus();
}

absl::Status ExchangeLoop::CheckMayAdvance(uint64_t seq) const {
  if (core_->shard() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("schedule entry ", seq, ", but shard 0 has stamped ",
                     schedule_seq_, " for step ", core_->version()));
  }
  if (core_->num_committed() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("schedule entry ", seq, " inside step ", core_->version(),
                     ", of which pushes have come under ", schedule_seq_));
  }
  return absl::OkStatus();
}

absl::Status ExchangeLoop::AdvanceSchedule(uint64_t seq) {
  if (seq <= schedule_seq_) return absl::OkStatus();
  if (seq > control_->NewestSeq() + kMaxEntriesAhead) {
    return absl::FailedPreconditionError(
        absl::StrCat("schedule entry ", seq, " does not exist: the newest is ",
                     control_->NewestSeq()));
  }
  // All entries first: a wait that fails must leave the schedule as it is. It
  // ends the stream that told of an entry which does not come.
  std::vector<v1::ScheduleEntry> entries;
  for (uint64_t s = schedule_seq_ + 1; s <= seq; ++s) {
    RV_ASSIGN_OR_RETURN(v1::ScheduleEntry entry, control_->WaitForEntry(s));
    entries.push_back(std::move(entry));
  }
  schedule_seq_ = seq;
  bool checkpoint = false;
  bool stop = false;
  for (const v1::ScheduleEntry& entry : entries) {
    if (entry.has_view()) fatal_ = core_->SetView(entry.view());
    if (entry.has_checkpoint()) checkpoint = true;
    if (entry.has_stop()) {
      stop = true;
      checkpoint = checkpoint || entry.stop().checkpoint();
    }
  }
  if (fatal_.ok()) fatal_ = ActAtBoundary(checkpoint, stop);
  return fatal_;
}

absl::Status ExchangeLoop::ActAtBoundary(bool checkpoint, bool stop) {
  if (checkpoint) {
    const int64_t step = core_->version();
    RV_RETURN_IF_ERROR(options_.save(step, core_->Save()));
    v1::DaemonMessage done;
    done.mutable_checkpoint_done()->set_step(static_cast<uint64_t>(step));
    control_->Send(std::move(done));
  }
  if (stop) SendFinished(/*complete=*/false);
  return absl::OkStatus();
}

absl::Status ExchangeLoop::HandleStatistics(const Worker& worker,
                                            const WholeStatistics& whole) {
  if (buffer_elements_ == 0) {
    return absl::InvalidArgumentError(
        "statistics of a model that has no running statistics");
  }
  if (whole.step != core_->version() - 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("statistics after step ", whole.step,
                     ", this shard collects ", core_->version()));
  }
  RV_RETURN_IF_ERROR(statistics_.Add(worker.rank, whole.bytes));
  if (!statistics_.ready()) return absl::OkStatus();
  const std::vector<float> mean = statistics_.TakeMean();
  for (const auto& message : StatisticsMessages(whole.step, mean)) {
    for (const auto& [rank, stream] : by_rank_) hub_->Send(stream, message);
  }
  if (core_->plan().IsLast(whole.step) && !finished_) {
    SendBuffers(mean);
    SendFinished(/*complete=*/true);
  }
  return absl::OkStatus();
}

absl::Status ExchangeLoop::SendWeights() {
  constexpr int64_t kPiece = kChunkBytes / sizeof(float);
  for (const Segment& s : core_->segments()) {
    const absl::Span<const float> w = core_->weights(s.local);
    for (int64_t begin = 0; begin < s.size(); begin += kPiece) {
      v1::DaemonMessage message;
      v1::WeightsPart* part = message.mutable_weights();
      part->set_tensor(static_cast<uint32_t>(s.tensor));
      part->set_begin(static_cast<uint64_t>(s.begin + begin));
      part->set_data(BytesOf(
          w.subspan(static_cast<size_t>(begin), static_cast<size_t>(kPiece))));
      control_->Send(std::move(message));
    }
  }
  // Shard 0 still has to average the statistics of the final weights.
  if (core_->shard() != 0 || buffer_elements_ == 0) {
    SendFinished(/*complete=*/true);
  }
  return absl::OkStatus();
}

void ExchangeLoop::SendBuffers(absl::Span<const float> values) {
  constexpr size_t kPiece = kChunkBytes / sizeof(float);
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    v1::DaemonMessage message;
    v1::WeightsPart* part = message.mutable_weights();
    part->set_buffers(true);
    part->set_begin(begin);
    part->set_data(BytesOf(values.subspan(begin, kPiece)));
    control_->Send(std::move(message));
  }
}

void ExchangeLoop::SendFinished(bool complete) {
  finished_ = true;
  v1::DaemonMessage message;
  v1::Finished* finished = message.mutable_finished();
  finished->set_step(static_cast<uint64_t>(core_->version()));
  finished->set_complete(complete);
  control_->Send(std::move(message));
}

}  // namespace rivulet
