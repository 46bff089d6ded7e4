#include "server/controller/run_metrics.h"

#include <cmath>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

RunShape Shape() {
  return {.workers = 2,
          .parameters = 100,
          .steps_per_epoch = 10,
          .total_steps = 40};
}

v1::WorkerReport Report(uint64_t step, double loss_sum, uint64_t correct,
                        uint64_t samples, double seconds) {
  v1::WorkerReport report;
  report.set_step(step);
  report.set_loss_sum(loss_sum);
  report.set_correct(correct);
  report.set_samples(samples);
  report.mutable_times()->set_total(seconds);
  return report;
}

TEST(RunMetricsTest, AddsWorkersUpIntoARow) {
  RunMetrics metrics(Shape(), 0, {});
  EXPECT_FALSE(metrics.TakeRow().has_value());
  v1::WorkerReport first = Report(5, 10, 4, 8, 2);
  first.mutable_traffic()->set_wire_up(100);
  first.mutable_traffic()->set_wire_down(200);
  first.mutable_traffic()->set_payload_up(90);
  first.mutable_traffic()->set_payload_down(180);
  first.set_voided(1);
  v1::WorkerReport second = Report(5, 2, 4, 8, 4);
  second.mutable_traffic()->set_wire_up(1000);
  metrics.AddReport(0, first);
  metrics.AddReport(1, second);
  metrics.SetShardTraffic(7, 9);
  const auto row = metrics.TakeRow();
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->step, 5);
  EXPECT_DOUBLE_EQ(row->epoch, 0.5);
  EXPECT_DOUBLE_EQ(*row->train_loss, 12.0 / 16);
  EXPECT_DOUBLE_EQ(*row->train_accuracy, 0.5);
  EXPECT_DOUBLE_EQ(row->samples_per_second, 8 / 2.0 + 8 / 4.0);
  EXPECT_DOUBLE_EQ(row->seconds, 4);
  EXPECT_EQ(row->totals.bytes_up, 1107);
  EXPECT_EQ(row->totals.bytes_down, 209);
  EXPECT_EQ(row->totals.payload_up, 90);
  EXPECT_EQ(row->totals.payload_down, 180);
  EXPECT_EQ(row->voided, 1);
  // 4 bytes * 100 parameters * 2 workers * 5 steps, both ways.
  EXPECT_DOUBLE_EQ(row->ratio, 8000.0 / 1316);
  EXPECT_FALSE(row->test.has_value());
  EXPECT_FALSE(metrics.TakeRow().has_value()) << "nothing new came";
}

TEST(RunMetricsTest, AWorkerThatHasNotReportedGoesOnAtItsPace) {
  RunMetrics metrics(Shape(), 0, {});
  metrics.AddReport(0, Report(1, 1, 1, 8, 2));
  metrics.AddReport(1, Report(1, 1, 1, 8, 4));
  EXPECT_DOUBLE_EQ(metrics.TakeRow()->samples_per_second, 4 + 2);
  metrics.AddReport(1, Report(2, 1, 1, 8, 1));
  EXPECT_DOUBLE_EQ(metrics.TakeRow()->samples_per_second, 4 + 8);
}

TEST(RunMetricsTest, AReportThatIsAnEpochLateIsNoTrouble) {
  RunMetrics metrics({.workers = 2,
                      .parameters = 100,
                      .steps_per_epoch = 1,
                      .total_steps = 40},
                     0, {});
  metrics.SetStep(9);
  metrics.AddReport(0, Report(3, 50, 0, 10, 1));
  EXPECT_FALSE(metrics.RecentLoss().has_value());
  metrics.AddReport(1, Report(9, 50, 0, 10, 1));
  EXPECT_DOUBLE_EQ(*metrics.RecentLoss(), 5);
}

TEST(RunMetricsTest, StepsBeyondTheRunAreNotBelieved) {
  RunMetrics metrics(Shape(), 0, {});
  const int64_t end = Shape().total_steps;
  v1::WorkerReport report = Report(1, 1, 1, 1, 1);
  report.set_step(~uint64_t{0});
  metrics.AddReport(0, report);
  EXPECT_EQ(metrics.step(), end);
  v1::Finished finished;
  finished.set_step(~uint64_t{0});
  metrics.AddFinished(0, finished);
  EXPECT_EQ(metrics.step(), end);
}

TEST(RunMetricsTest, TakesTrafficAsTotalsAndTimesAsDifferences) {
  RunMetrics metrics(Shape(), 0, {});
  v1::WorkerReport report = Report(1, 1, 1, 4, 2);
  report.mutable_traffic()->set_wire_up(100);
  metrics.AddReport(0, report);
  report.mutable_traffic()->set_wire_up(150);
  metrics.AddReport(0, report);
  EXPECT_EQ(metrics.Totals().bytes_up, 150);
  EXPECT_DOUBLE_EQ(metrics.Totals().seconds, 4);
  EXPECT_EQ(metrics.Totals().samples, 8);
  v1::Finished finished;
  finished.set_step(3);
  finished.set_train_seconds(4.5);
  finished.set_samples(9);
  finished.mutable_traffic()->set_wire_up(170);
  metrics.AddFinished(0, finished);
  EXPECT_EQ(metrics.Totals().bytes_up, 170);
  EXPECT_DOUBLE_EQ(metrics.Totals().seconds, 4.5);
  EXPECT_EQ(metrics.Totals().samples, 9);
  EXPECT_DOUBLE_EQ(metrics.SamplesPerSecond(), 2);
  EXPECT_EQ(metrics.step(), 3);
}

TEST(RunMetricsTest, AResumedRunGoesOnFromEarlierTotals) {
  const RunTotals earlier = {.bytes_up = 1000,
                             .bytes_down = 2000,
                             .payload_up = 900,
                             .payload_down = 1900,
                             .steady_bytes_up = 500,
                             .steady_worker_steps = 10,
                             .samples = 80,
                             .seconds = 10};
  RunMetrics metrics(Shape(), 20, earlier);
  EXPECT_EQ(metrics.step(), 20);
  v1::Finished finished;
  finished.set_step(40);
  finished.set_train_seconds(5);
  finished.set_samples(70);
  finished.mutable_traffic()->set_wire_up(10);
  finished.mutable_traffic()->set_steady_wire_up(300);
  finished.mutable_traffic()->set_steady_steps(20);
  metrics.AddFinished(0, finished);
  const RunTotals totals = metrics.Totals();
  EXPECT_EQ(totals.bytes_up, 1010);
  EXPECT_EQ(totals.bytes_down, 2000);
  EXPECT_DOUBLE_EQ(totals.seconds, 15);
  EXPECT_DOUBLE_EQ(metrics.SamplesPerSecond(), 10);
  EXPECT_EQ(metrics.DenseBytesOneWay(), 4 * 100 * 2 * 40) << "the whole run";
  EXPECT_DOUBLE_EQ(metrics.SteadyUplinkRatio(), 400.0 * 30 / 800);
}

// Where the traffic of an earlier part is lost, dense training counts from
// there too: a ratio of unlike parts would flatter.
TEST(RunMetricsTest, TheRatioCountsTheSameStepsOnBothSides) {
  RunTotals earlier;
  earlier.counted_from = 20;
  RunMetrics metrics(Shape(), 20, earlier);
  EXPECT_EQ(metrics.DenseBytesOneWay(), 0);
  v1::Finished finished;
  finished.set_step(40);
  finished.mutable_traffic()->set_wire_up(400);
  finished.mutable_traffic()->set_wire_down(400);
  metrics.AddFinished(0, finished);
  EXPECT_EQ(metrics.DenseBytesOneWay(), 4 * 100 * 2 * 20);
  EXPECT_DOUBLE_EQ(metrics.Ratio(), 2.0 * 4 * 100 * 2 * 20 / 800);
  EXPECT_EQ(metrics.Totals().counted_from, 20);
}

TEST(RunMetricsTest, AnEvaluationIsWholeWhenEveryWorkerHasSentItsPart) {
  RunMetrics metrics(Shape(), 0, {});
  v1::EvaluationResult part;
  part.set_step(10);
  part.set_correct(3);
  part.set_samples(4);
  part.set_loss_sum(2);
  EXPECT_FALSE(metrics.AddEvaluation(0, part));
  EXPECT_FALSE(metrics.AddEvaluation(0, part)) << "the same worker again";
  EXPECT_FALSE(metrics.last_evaluation().has_value());
  part.set_correct(1);
  part.set_loss_sum(6);
  EXPECT_TRUE(metrics.AddEvaluation(1, part));
  ASSERT_TRUE(metrics.last_evaluation().has_value());
  EXPECT_DOUBLE_EQ(metrics.last_evaluation()->accuracy, 0.5);
  EXPECT_DOUBLE_EQ(metrics.last_evaluation()->loss, 1);
  EXPECT_EQ(metrics.last_evaluation()->step, 10);
  EXPECT_EQ(metrics.num_evaluations(), 1);
  const auto row = metrics.TakeRow();
  ASSERT_TRUE(row->test.has_value());
  EXPECT_EQ(row->step, 10) << "no report was needed to tell";
  metrics.AddReport(0, Report(11, 1, 1, 1, 1));
  EXPECT_FALSE(metrics.TakeRow()->test.has_value()) << "told once";
}

TEST(RunMetricsTest, AddsWhatAPeerSaysHoweverLarge) {
  RunMetrics metrics(Shape(), 0, {});
  v1::WorkerReport report;
  report.set_step(1);
  report.set_samples(~uint64_t{0});
  report.set_correct(~uint64_t{0});
  report.mutable_traffic()->set_wire_up(~uint64_t{0});
  report.mutable_traffic()->set_steady_steps(~uint64_t{0});
  for (const double seconds : {-1.0, std::nan(""), HUGE_VAL, 2.0}) {
    report.mutable_times()->set_total(seconds);
    metrics.AddReport(0, report);
  }
  const RunTotals totals = metrics.Totals();
  EXPECT_EQ(totals.seconds, 2.0);
  EXPECT_EQ(totals.bytes_up, int64_t{1} << 52);
  EXPECT_EQ(totals.samples, int64_t{1} << 54);
}

TEST(RunMetricsTest, RecentLossIsOfTheLastEpoch) {
  RunMetrics metrics(Shape(), 0, {});
  EXPECT_FALSE(metrics.RecentLoss().has_value());
  metrics.AddReport(0, Report(5, 50, 0, 10, 1));
  EXPECT_DOUBLE_EQ(*metrics.RecentLoss(), 5);
  metrics.AddReport(0, Report(12, 20, 10, 10, 1));
  EXPECT_DOUBLE_EQ(*metrics.RecentLoss(), 3.5);
  metrics.AddReport(0, Report(16, 10, 5, 10, 1));
  EXPECT_DOUBLE_EQ(*metrics.RecentLoss(), 1.5) << "step 5 is an epoch ago";
  EXPECT_DOUBLE_EQ(*metrics.RecentAccuracy(), 0.75);
}

TEST(RunMetricsTest, FillsTheStatusThatWatchersSee) {
  RunMetrics metrics(Shape(), 0, {});
  v1::RunStatus status;
  metrics.FillStatus(&status);
  EXPECT_EQ(status.test_accuracy(), -1);
  EXPECT_EQ(status.total_steps(), 40u);
  EXPECT_EQ(status.ratio(), 0);
  metrics.SetStep(20);
  metrics.SetStep(10);
  metrics.FillStatus(&status);
  EXPECT_EQ(status.step(), 20u) << "a late message takes nothing back";
  EXPECT_DOUBLE_EQ(status.epoch(), 2);
}

}  // namespace
}  // namespace rivulet
