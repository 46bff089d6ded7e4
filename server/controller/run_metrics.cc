#include "server/controller/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/base/check.h"

namespace rivulet {
namespace {

// Workers are at most one evaluation apart: more under way are not honest.
constexpr size_t kMaxUnderWay = 8;

// A peer's numbers, as far as they can be true and can be added up.
int64_t BelievedCount(uint64_t count) {
  return static_cast<int64_t>(std::min(count, uint64_t{1} << 52));
}
double BelievedSeconds(double seconds) {
  return std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e9) : 0.0;
}

}  // namespace

void RunMetrics::Sums::operator+=(const Sums& other) {
  loss += other.loss;
  correct += other.correct;
  samples += other.samples;
}

RunMetrics::RunMetrics(RunShape shape, int64_t first_step,
                       const RunTotals& earlier)
    : shape_(shape),
      earlier_(earlier),
      step_(first_step),
      workers_(static_cast<size_t>(shape.workers)),
      pace_(static_cast<size_t>(shape.workers)) {}

void RunMetrics::AddReport(int rank, const v1::WorkerReport& report) {
  RV_CHECK_LT(static_cast<size_t>(rank), workers_.size());
  Worker& worker = workers_[rank];
  worker.traffic = report.traffic();
  const double seconds = BelievedSeconds(report.times().total());
  worker.seconds += seconds;
  worker.samples += BelievedCount(report.samples());
  worker.voided = BelievedCount(report.voided());
  const int64_t step = Believed(report.step());
  const Sums sums{report.loss_sum(), BelievedCount(report.correct()),
                  BelievedCount(report.samples())};
  interval_ += sums;
  pace_[rank].samples += sums.samples;
  pace_[rank].seconds += seconds;
  if (!recent_.empty() && recent_.back().step == step) {
    recent_.back().sums += sums;
  } else {
    recent_.push_back({step, sums});
  }
  SetStep(report.step());
  // A report that comes a whole epoch late goes at once.
  while (!recent_.empty() &&
         recent_.front().step + shape_.steps_per_epoch <= step_) {
    recent_.pop_front();
  }
  news_ = true;
}

bool RunMetrics::AddEvaluation(int rank, const v1::EvaluationResult& result) {
  const int64_t step = Believed(result.step());
  std::map<int, v1::EvaluationResult>& parts = evaluations_[step];
  parts[rank] = result;
  if (static_cast<int>(parts.size()) < shape_.workers) {
    if (evaluations_.size() > kMaxUnderWay) {
      evaluations_.erase(evaluations_.begin());
    }
    return false;
  }
  Sums sums;
  for (const auto& [r, part] : parts) {
    sums += {part.loss_sum(), BelievedCount(part.correct()),
             BelievedCount(part.samples())};
  }
  evaluations_.erase(evaluations_.begin(), evaluations_.upper_bound(step));
  const double samples =
      static_cast<double>(std::max<int64_t>(sums.samples, 1));
  SetStep(result.step());
  evaluation_ = {step, sums.loss / samples,
                 static_cast<double>(sums.correct) / samples};
  new_evaluation_ = evaluation_;
  ++num_evaluations_;
  news_ = true;
  return true;
}

void RunMetrics::AddFinished(int rank, const v1::Finished& finished) {
  RV_CHECK_LT(static_cast<size_t>(rank), workers_.size());
  Worker& worker = workers_[rank];
  worker.traffic = finished.traffic();
  worker.seconds = BelievedSeconds(finished.train_seconds());
  worker.samples = BelievedCount(finished.samples());
  SetStep(finished.step());
  news_ = true;
}

void RunMetrics::SetShardTraffic(int64_t up, int64_t down) {
  shard_up_ = up;
  shard_down_ = down;
}

int64_t RunMetrics::Believed(uint64_t step) const {
  return static_cast<int64_t>(
      std::min(step, static_cast<uint64_t>(shape_.total_steps)));
}

void RunMetrics::SetStep(uint64_t step) {
  step_ = std::max(step_, Believed(step));
}

RunTotals RunMetrics::Totals() const {
  RunTotals totals = earlier_;
  totals.bytes_up += shard_up_;
  totals.bytes_down += shard_down_;
  double seconds = 0;
  for (const Worker& worker : workers_) {
    totals.bytes_up += BelievedCount(worker.traffic.wire_up());
    totals.bytes_down += BelievedCount(worker.traffic.wire_down());
    totals.payload_up += BelievedCount(worker.traffic.payload_up());
    totals.payload_down += BelievedCount(worker.traffic.payload_down());
    totals.steady_bytes_up += BelievedCount(worker.traffic.steady_wire_up());
    totals.steady_worker_steps += BelievedCount(worker.traffic.steady_steps());
    totals.samples += worker.samples;
    seconds = std::max(seconds, worker.seconds);
  }
  totals.seconds += seconds;
  return totals;
}

double RunMetrics::epoch() const {
  return static_cast<double>(step_) /
         static_cast<double>(std::max<int64_t>(shape_.steps_per_epoch, 1));
}

RunMetrics::Sums RunMetrics::Recent() const {
  Sums sums;
  for (const Part& part : recent_) sums += part.sums;
  return sums;
}

std::optional<double> RunMetrics::RecentLoss() const {
  const Sums sums = Recent();
  if (sums.samples == 0) return std::nullopt;
  return sums.loss / static_cast<double>(sums.samples);
}

std::optional<double> RunMetrics::RecentAccuracy() const {
  const Sums sums = Recent();
  if (sums.samples == 0) return std::nullopt;
  return static_cast<double>(sums.correct) / static_cast<double>(sums.samples);
}

int64_t RunMetrics::voided() const {
  int64_t voided = 0;
  for (const Worker& worker : workers_) voided += worker.voided;
  return voided;
}

int64_t RunMetrics::DenseBytesOneWay() const {
  return 4 * shape_.parameters * shape_.workers *
         std::max<int64_t>(0, step_ - earlier_.counted_from);
}

double RunMetrics::Ratio() const {
  const RunTotals totals = Totals();
  const int64_t wire = totals.bytes_up + totals.bytes_down;
  return wire == 0 ? 0
                   : 2.0 * static_cast<double>(DenseBytesOneWay()) /
                         static_cast<double>(wire);
}

double RunMetrics::SteadyUplinkRatio() const {
  const RunTotals totals = Totals();
  if (totals.steady_bytes_up == 0) return 0;
  return 4.0 * static_cast<double>(shape_.parameters) *
         static_cast<double>(totals.steady_worker_steps) /
         static_cast<double>(totals.steady_bytes_up);
}

double RunMetrics::SamplesPerSecond() const {
  const RunTotals totals = Totals();
  return totals.seconds > 0
             ? static_cast<double>(totals.samples) / totals.seconds
             : 0;
}

double RunMetrics::Rate() const {
  double rate = 0;
  for (const Pace& pace : pace_) rate += pace.rate;
  return rate;
}

std::optional<MetricsRow> RunMetrics::TakeRow() {
  if (!news_) return std::nullopt;
  MetricsRow row;
  row.totals = Totals();
  row.seconds = row.totals.seconds;
  row.step = step_;
  row.epoch = epoch();
  if (interval_.samples > 0) {
    const double samples = static_cast<double>(interval_.samples);
    row.train_loss = interval_.loss / samples;
    row.train_accuracy = static_cast<double>(interval_.correct) / samples;
  }
  // Workers report at moments of their own: a row may hold the reports of a few
  // only, and the others go on at the pace they had.
  for (Pace& pace : pace_) {
    if (pace.seconds > 0) {
      pace = {.rate = static_cast<double>(pace.samples) / pace.seconds};
    }
  }
  row.test = new_evaluation_;
  row.samples_per_second = Rate();
  row.ratio = Ratio();
  row.voided = voided();
  interval_ = Sums();
  new_evaluation_.reset();
  news_ = false;
  return row;
}

void RunMetrics::FillStatus(v1::RunStatus* status) const {
  const RunTotals totals = Totals();
  status->set_step(static_cast<uint64_t>(step_));
  status->set_total_steps(static_cast<uint64_t>(shape_.total_steps));
  status->set_epoch(epoch());
  status->set_train_loss(RecentLoss().value_or(0));
  status->set_train_accuracy(RecentAccuracy().value_or(0));
  status->set_test_accuracy(evaluation_.has_value() ? evaluation_->accuracy
                                                    : -1);
  status->set_test_loss(evaluation_.has_value() ? evaluation_->loss : 0);
  status->set_samples_per_second(Rate());
  status->set_bytes_up(static_cast<uint64_t>(totals.bytes_up));
  status->set_bytes_down(static_cast<uint64_t>(totals.bytes_down));
  status->set_ratio(Ratio());
  status->set_evaluations(static_cast<uint64_t>(num_evaluations_));
}

}  // namespace rivulet
