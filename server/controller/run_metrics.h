// What the daemons report, added up: the progress of a run, a line of
// metrics.csv a report interval, and the totals of its summary.
//
// Decisions only. Thread-compatible. Doubles are added in the order of arrival,
// so the last digits of losses may differ from run to run; weights never do.

#ifndef RIVULET_SERVER_CONTROLLER_RUN_METRICS_H_
#define RIVULET_SERVER_CONTROLLER_RUN_METRICS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "proto/controller.pb.h"

namespace rivulet {

// Sums over the whole run, earlier parts of a resumed one included.
struct RunTotals {
  int64_t bytes_up = 0;  // on the wire, workers and shards
  int64_t bytes_down = 0;
  int64_t payload_up = 0;  // frames alone
  int64_t payload_down = 0;
  int64_t steady_bytes_up = 0;  // of workers, after the density warm-up
  int64_t steady_worker_steps = 0;
  int64_t samples = 0;
  double seconds = 0;  // of training alone
  // The step from which on all of these count; beyond 0 where what was before
  // is not known.
  int64_t counted_from = 0;
};

struct RunShape {
  int workers = 1;
  int64_t parameters = 0;
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 1;
};

// One evaluation of all workers together.
struct Evaluation {
  int64_t step = 0;
  double loss = 0;      // mean
  double accuracy = 0;  // 0 to 1
};

struct MetricsRow {
  double seconds = 0;
  int64_t step = 0;
  double epoch = 0;
  std::optional<double> train_loss;  // since the row before; empty: no samples
  std::optional<double> train_accuracy;
  std::optional<Evaluation> test;
  double samples_per_second = 0;
  RunTotals totals;
  double ratio = 0;
  int64_t voided = 0;
};

class RunMetrics {
 public:
  // `earlier` are the totals before this part, which begins at `first_step`.
  RunMetrics(RunShape shape, int64_t first_step, const RunTotals& earlier);

  void AddReport(int rank, const v1::WorkerReport& report);
  // True when the evaluation is complete, that is, has come from every worker.
  // Of incomplete ones only the newest few are kept.
  bool AddEvaluation(int rank, const v1::EvaluationResult& result);
  void AddFinished(int rank, const v1::Finished& finished);
  // Bytes of the shards' sessions so far.
  void SetShardTraffic(int64_t up, int64_t down);

  // A row when something came since the last one.
  std::optional<MetricsRow> TakeRow();

  // The furthest step that somebody has reported as done.
  int64_t step() const { return step_; }
  // A peer's number is believed as far as it can be true.
  void SetStep(uint64_t step);
  RunTotals Totals() const;
  double epoch() const;
  // Of the last epoch, or of all steps of a shorter run; empty before the first
  // report.
  std::optional<double> RecentLoss() const;
  std::optional<double> RecentAccuracy() const;
  const std::optional<Evaluation>& last_evaluation() const {
    return evaluation_;
  }
  int64_t num_evaluations() const { return num_evaluations_; }
  int64_t voided() const;

  // Bytes, each way, that fp32 gradients and weights of the steps so far take,
  // as far as their traffic is counted.
  int64_t DenseBytesOneWay() const;
  // Dense bytes both ways / wire bytes both ways; 0 while nothing was sent.
  double Ratio() const;
  // As Ratio, of the uplink after the density warm-up; 0 without such steps.
  double SteadyUplinkRatio() const;
  double SamplesPerSecond() const;  // over the whole run

  // Progress; phase, message and time left are the caller's.
  void FillStatus(v1::RunStatus* status) const;

 private:
  struct Worker {
    v1::Traffic traffic;  // since its start
    double seconds = 0;
    int64_t samples = 0;
    int64_t voided = 0;
  };
  struct Sums {
    double loss = 0;
    int64_t correct = 0;
    int64_t samples = 0;
    void operator+=(const Sums& other);
  };
  struct Part {  // one report, for the recent loss
    int64_t step = 0;
    Sums sums;
  };

  // A peer's number, as far as it can be true.
  int64_t Believed(uint64_t step) const;
  Sums Recent() const;
  // All workers' samples a second, each at its newest known pace.
  double Rate() const;

  const RunShape shape_;
  const RunTotals earlier_;
  int64_t step_;
  std::vector<Worker> workers_;
  int64_t shard_up_ = 0;
  int64_t shard_down_ = 0;
  std::deque<Part> recent_;
  // Since the last row.
  Sums interval_;
  struct Pace {
    int64_t samples = 0;  // since the last row
    double seconds = 0;
    double rate = 0;  // samples a second, of the last row that had some
  };
  std::vector<Pace> pace_;  // by rank
  bool news_ = false;

  std::map<int64_t, std::map<int, v1::EvaluationResult>> evaluations_;
  std::optional<Evaluation> evaluation_;
  std::optional<Evaluation> new_evaluation_;  // for the next row
  int64_t num_evaluations_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_RUN_METRICS_H_
