#include "worker/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "compression/frame.h"
#include "spdlog/spdlog.h"

namespace rivulet {
namespace {

void AddTo(const LossResult& part, LossResult* sum) {
  sum->loss_sum += part.loss_sum;
  sum->correct += part.correct;
  sum->samples += part.samples;
}

}  // namespace

Trainer::Trainer(Parts parts, Options options)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      plan_(*parts_.plan),
      workers_(static_cast<int>(plan_.config().cluster.workers)),
      evaluator_(parts_.plan, options_.rank, parts_.model, parts_.test,
                 parts_.train, parts_.shards[0]),
      schedule_seq_(options_.schedule_seq),
      steps_done_(options_.first_step),
      voided_(options_.voided) {}

absl::Status Trainer::Run() {
  const int64_t total = plan_.total_steps();
  if (options_.first_step >= total) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run has ", total, " steps and ", options_.first_step,
                     " are done: nothing is left to train"));
  }
  report_at_ = absl::Now() + plan_.config().report.every;
  parts_.train->Start(options_.first_step, total, workers_, options_.rank);
  for (int64_t step = options_.first_step; step < total && !stopped_; ++step) {
    if (step >= plan_.steady_from() && !steady_wire_base_.has_value()) {
      steady_wire_base_ = TrafficNow().wire_up();
    }
    RV_RETURN_IF_ERROR(TrainStep(step));
    RV_RETURN_IF_ERROR(AfterStep(step));
  }
  SendReport();
  SendFinished();
  return absl::OkStatus();
}

absl::Status Trainer::TrainStep(int64_t step) {
  const absl::Time start = absl::Now();
  RV_ASSIGN_OR_RETURN(const Batch batch, parts_.train->Next());
  RV_CHECK_EQ(batch.step, step);
  const absl::Time computing = absl::Now();
  parts_.pipeline->BeginStep(step);
  const absl::Status pushed = ComputeGradients(batch);
  const absl::Duration compress = parts_.pipeline->TakeCompressTime();
  const absl::Duration compute = absl::Now() - computing - compress;
  RV_RETURN_IF_ERROR(Conclude(step, batch, pushed));
  RV_RETURN_IF_ERROR(ApplyUpdates(step));

  const absl::Duration total = absl::Now() - start;
  train_time_ += total;
  times_.data += computing - start;
  times_.compute += compute;
  times_.compress += compress;
  times_.total += total;
  return absl::OkStatus();
}

absl::Status Trainer::ComputeGradients(const Batch& batch) {
  step_loss_ = LossResult();
  if (batch.size() == 0) return absl::OkStatus();
  // A pass whose values are not finite would stay in the running statistics.
  const std::vector<float> buffers = GetBuffers(*parts_.model);
  step_loss_ = parts_.model->Forward(batch.images, batch.labels);
  absl::Status status;
  if (!std::isfinite(step_loss_.loss_sum)) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "step ", batch.step, ": the loss is ", step_loss_.loss_sum));
  } else if (const double norm = plan_.LocalClipNorm(workers_); norm > 0) {
    status = BackwardClipped(norm);
  } else {
    status = BackwardStreaming();
  }
  if (!status.ok()) SetBuffers(*parts_.model, buffers);
  return status;
}

absl::Status Trainer::BackwardStreaming() {
  absl::Status status;
  parts_.model->Backward([&](int tensor) {
    if (status.ok()) status = Push(tensor, 1.0f);
  });
  return status;
}

// The norm is known only after the whole pass, so sending starts then.
absl::Status Trainer::BackwardClipped(double max_norm) {
  std::vector<int> order;
  double sum = 0;
  parts_.model->Backward([&](int tensor) {
    order.push_back(tensor);
    for (const float g : parts_.model->gradient(tensor)) {
      sum += static_cast<double>(g) * static_cast<double>(g);
    }
  });
  const double norm = std::sqrt(sum);
  // A norm that is not finite comes from a gradient that is not, which Push
  // then finds and names.
  const float scale =
      norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
  for (const int tensor : order) RV_RETURN_IF_ERROR(Push(tensor, scale));
  return absl::OkStatus();
}

absl::Status Trainer::Push(int tensor, float scale) {
  return parts_.pipeline->OnGradient(tensor,
                                     &parts_.model->gradient_buffer(tensor),
                                     scale, parts_.model->parameter(tensor));
}

absl::Status Trainer::Conclude(int64_t step, const Batch& batch,
                               const absl::Status& pushed) {
  if (options_.before_commit != nullptr) options_.before_commit(step);
  step_voided_ = !pushed.ok();
  step_samples_ = batch.size();
  if (pushed.ok()) {
    parts_.pipeline->Commit(batch.size(), schedule_seq_);
    AddTo(step_loss_, &loss_);
    samples_ += batch.size();
    if (batch.size() > 0) voided_.in_a_row = 0;
    return absl::OkStatus();
  }
  parts_.pipeline->Void(schedule_seq_);
  ++voided_.total;
  ++voided_.in_a_row;
  spdlog::warn("voided this worker's push: {}", std::string(pushed.message()));
  if (voided_.in_a_row >= kMaxVoidedInARow) {
    return absl::FailedPreconditionError(
        absl::StrCat(voided_.in_a_row, " steps in a row had to be voided; ",
                     "the last: ", pushed.message()));
  }
  return absl::OkStatus();
}

// In shard order, whatever the order of arrival.
absl::Status Trainer::ApplyUpdates(int64_t step) {
  for (size_t s = 0; s < parts_.shards.size(); ++s) {
    const absl::Time waiting = absl::Now();
    RV_ASSIGN_OR_RETURN(const ReceivedUpdate update,
                        parts_.shards[s]->WaitForUpdate(step));
    const absl::Time applying = absl::Now();
    RV_RETURN_IF_ERROR(
        Annotate(ApplyUpdate(s, update),
                 absl::StrCat("the update of step ", step, " from shard ", s)));
    times_.wait += applying - waiting;
    times_.apply += absl::Now() - applying;
    if (s == 0) announced_seq_ = update.end.schedule_seq();
  }
  parts_.model->ParametersChanged();
  return absl::OkStatus();
}

absl::Status Trainer::ApplyUpdate(size_t shard, const ReceivedUpdate& update) {
  if (update.end.version() != static_cast<uint64_t>(update.step) + 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "version ", update.end.version(), ", expected ", update.step + 1));
  }
  RV_RETURN_IF_ERROR(CheckCounted(update.end));
  RV_ASSIGN_OR_RETURN(
      const std::vector<SegmentUpdate> changes,
      DecodeFrames(update.bytes, plan_.segment_table(static_cast<int>(shard))));
  const absl::Span<const Segment> segments =
      plan_.partition().OfShard(static_cast<int>(shard));
  for (const SegmentUpdate& change : changes) {
    const Segment& segment = segments[change.segment];
    change.ApplyTo(parts_.model->parameter(segment.tensor)
                       .subspan(static_cast<size_t>(segment.begin),
                                static_cast<size_t>(segment.size())));
  }
  return absl::OkStatus();
}

absl::Status Trainer::CheckCounted(const v1::UpdateEnd& end) const {
  const auto is_own = [this](const v1::Contributor& c) {
    return c.rank() == static_cast<uint32_t>(options_.rank);
  };
  const auto& named = end.contributors();
  const bool counted =
      !end.none() &&
      (named.empty() || std::any_of(named.begin(), named.end(), is_own));
  if (counted && step_voided_) {
    return absl::InternalError("it counts a push that this worker has voided");
  }
  // A slice of no samples may go either way.
  if (!counted && !step_voided_ && step_samples_ > 0) {
    return absl::InternalError("it does not count this worker's push");
  }
  return absl::OkStatus();
}

absl::Status Trainer::AfterStep(int64_t step) {
  steps_done_ = step + 1;
  if (steady_wire_base_.has_value()) ++steady_steps_;
  parts_.session->SetStep(steps_done_);
  // Before the boundary: shards may end at it, and shard 0 is needed here.
  if (plan_.EvaluatesAfter(step)) RV_RETURN_IF_ERROR(Evaluate(step));
  // Nothing holds after the last step.
  if (!plan_.IsLast(step) && announced_seq_ > schedule_seq_) {
    RV_RETURN_IF_ERROR(ActOnSchedule(step));
  }
  if (absl::Now() >= report_at_) SendReport();
  return absl::OkStatus();
}

absl::Status Trainer::ActOnSchedule(int64_t step) {
  bool checkpoint = false;
  for (uint64_t seq = schedule_seq_ + 1; seq <= announced_seq_; ++seq) {
    RV_ASSIGN_OR_RETURN(
        const v1::ScheduleEntry entry,
        parts_.session->WaitForEntry(seq, plan_.config().cluster.lease));
    if (entry.has_checkpoint()) checkpoint = true;
    if (entry.has_stop()) {
      stopped_ = true;
      checkpoint = checkpoint || entry.stop().checkpoint();
    }
  }
  schedule_seq_ = announced_seq_;
  for (ShardStream* const shard : parts_.shards) {
    shard->SendBoundary(step, schedule_seq_);
  }
  return checkpoint ? SaveCheckpoint(step + 1) : absl::OkStatus();
}

absl::Status Trainer::SaveCheckpoint(int64_t step) {
  RV_RETURN_IF_ERROR(
      Annotate(parts_.save(step, voided_),
               absl::StrCat("cannot save the checkpoint of step ", step)));
  // First, so that the controller knows what this run has cost up to here.
  SendReport();
  v1::DaemonMessage message;
  message.mutable_checkpoint_done()->set_step(static_cast<uint64_t>(step));
  parts_.session->Send(std::move(message));
  return absl::OkStatus();
}

absl::Status Trainer::Evaluate(int64_t step) {
  RV_ASSIGN_OR_RETURN(const LossResult result,
                      plan_.IsLast(step) ? evaluator_.EvaluateFinal(step)
                                         : evaluator_.EvaluateAfter(step));
  // First what led to it, so that both are told of the same step.
  SendReport();
  v1::DaemonMessage message;
  v1::EvaluationResult& evaluation = *message.mutable_evaluation();
  evaluation.set_step(static_cast<uint64_t>(steps_done_));
  evaluation.set_correct(static_cast<uint64_t>(result.correct));
  evaluation.set_samples(static_cast<uint64_t>(result.samples));
  evaluation.set_loss_sum(result.loss_sum);
  parts_.session->Send(std::move(message));
  return absl::OkStatus();
}

void Trainer::SendReport() {
  if (reported_step_ == steps_done_) return;  // nothing new
  reported_step_ = steps_done_;
  v1::DaemonMessage message;
  v1::WorkerReport& report = *message.mutable_report();
  report.set_step(static_cast<uint64_t>(steps_done_));
  report.set_loss_sum(loss_.loss_sum);
  report.set_correct(static_cast<uint64_t>(loss_.correct));
  report.set_samples(static_cast<uint64_t>(loss_.samples));
  report.set_voided(static_cast<uint64_t>(voided_.total));
  *report.mutable_traffic() = TrafficNow();
  v1::StepTimes& times = *report.mutable_times();
  times.set_total(absl::ToDoubleSeconds(times_.total));
  times.set_compute(absl::ToDoubleSeconds(times_.compute));
  times.set_compress(absl::ToDoubleSeconds(times_.compress));
  times.set_wait(absl::ToDoubleSeconds(times_.wait));
  times.set_apply(absl::ToDoubleSeconds(times_.apply));
  times.set_data(absl::ToDoubleSeconds(times_.data));
  spdlog::debug(
      "seconds up to step {}: {:.3f} = {:.3f} compute + {:.3f} compress + "
      "{:.3f} wait + {:.3f} apply + {:.3f} data",
      steps_done_, times.total(), times.compute(), times.compress(),
      times.wait(), times.apply(), times.data());
  parts_.session->Send(std::move(message));
  loss_ = LossResult();
  times_ = Times();
  report_at_ = absl::Now() + plan_.config().report.every;
}

void Trainer::SendFinished() {
  v1::DaemonMessage message;
  v1::Finished& finished = *message.mutable_finished();
  finished.set_step(static_cast<uint64_t>(steps_done_));
  finished.set_train_seconds(absl::ToDoubleSeconds(train_time_));
  finished.set_samples(static_cast<uint64_t>(samples_));
  *finished.mutable_traffic() = TrafficNow();
  finished.set_complete(!stopped_);
  parts_.session->Send(std::move(message));
}

v1::Traffic Trainer::TrafficNow() const {
  int64_t wire_up = parts_.session->wire_sent();
  int64_t wire_down = parts_.session->wire_received();
  int64_t payload_up = 0;
  int64_t payload_down = 0;
  for (const ShardStream* const shard : parts_.shards) {
    wire_up += shard->sent().wire();
    wire_down += shard->received().wire();
    payload_up += shard->sent().payload();
    payload_down += shard->received().payload();
  }
  v1::Traffic traffic;
  traffic.set_wire_up(static_cast<uint64_t>(wire_up));
  traffic.set_wire_down(static_cast<uint64_t>(wire_down));
  traffic.set_payload_up(static_cast<uint64_t>(payload_up));
  traffic.set_payload_down(static_cast<uint64_t>(payload_down));
  if (steady_wire_base_.has_value()) {
    traffic.set_steady_wire_up(traffic.wire_up() - *steady_wire_base_);
    traffic.set_steady_steps(static_cast<uint64_t>(steady_steps_));
  }
  return traffic;
}

}  // namespace rivulet
