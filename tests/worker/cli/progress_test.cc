#include "worker/cli/progress.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressTest, BytesHaveThreeDigitsAndDecimalUnits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(999.9), "1.00 kB");
  EXPECT_EQ(HumanBytes(1234), "1.23 kB");
  EXPECT_EQ(HumanBytes(45678), "45.7 kB");
  EXPECT_EQ(HumanBytes(999'900), "1.00 MB");
  EXPECT_EQ(HumanBytes(123.4e9), "123 GB");
}

TEST(ProgressTest, DurationsReadAsClocks) {
  EXPECT_EQ(HumanDuration(7), "0:07");
  EXPECT_EQ(HumanDuration(754), "12:34");
  EXPECT_EQ(HumanDuration(3723), "1:02:03");
}

v1::RunStatus Training() {
  v1::RunStatus status;
  status.set_phase(v1::RunStatus::TRAINING);
  status.set_step(50);
  status.set_total_steps(100);
  status.set_epoch(0.5);
  status.set_train_loss(0.25);
  status.set_train_accuracy(0.912);
  status.set_test_accuracy(-1);
  status.set_samples_per_second(902.4);
  status.set_ratio(123.4);
  status.set_seconds_left(61);
  return status;
}

TEST(ProgressTest, LineShowsWhatIsKnown) {
  EXPECT_EQ(ProgressLine(Training()),
            "epoch 0.50  step 50/100  loss 0.2500  accuracy 91.2 %  "
            "902 samples/s  ratio 123x  1:01 left");
  v1::RunStatus status = Training();
  status.set_test_accuracy(0.905);
  status.set_seconds_left(-1);
  EXPECT_EQ(ProgressLine(status),
            "epoch 0.50  step 50/100  loss 0.2500  accuracy 91.2 %  "
            "test 90.50 %  902 samples/s  ratio 123x");
}

TEST(ProgressTest, LineTellsNothingBeforeTheFirstReport) {
  v1::RunStatus status;
  status.set_total_steps(100);
  status.set_test_accuracy(-1);
  status.set_seconds_left(-1);
  EXPECT_EQ(ProgressLine(status), "epoch 0.00  step 0/100");
}

class PrinterTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = std::tmpfile(); }
  void TearDown() override { std::fclose(file_); }
  std::string Printed() {
    std::fflush(file_);
    std::rewind(file_);
    std::string text;
    for (int c; (c = std::fgetc(file_)) != EOF;) text.push_back(c);
    return text;
  }
  std::FILE* file_ = nullptr;
};

TEST_F(PrinterTest, PlainLinesComeAtIntervalsAndAtEvaluations) {
  ProgressPrinter printer(file_, /*terminal=*/false, absl::Seconds(10),
                          /*resume=*/false);
  v1::RunStatus status = Training();
  const absl::Time start = absl::UnixEpoch();
  printer.Show(status, start);                     // phase changed
  printer.Show(status, start + absl::Seconds(1));  // nothing
  status.set_evaluations(1);
  printer.Show(status, start + absl::Seconds(2));   // evaluated
  printer.Show(status, start + absl::Seconds(11));  // nothing: 9 s later
  printer.Show(status, start + absl::Seconds(12));  // interval
  const std::string text = Printed();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST_F(PrinterTest, TerminalLineIsRedrawnAndClearsALongerOne) {
  ProgressPrinter printer(file_, /*terminal=*/true, absl::Seconds(10),
                          /*resume=*/false);
  v1::RunStatus status = Training();
  printer.Show(status, absl::UnixEpoch());
  const size_t longer = ProgressLine(status).size();
  status.set_seconds_left(-1);
  printer.Show(status, absl::UnixEpoch());
  printer.Finish();
  const std::string text = Printed();
  const std::string last = text.substr(text.rfind('\r') + 1);
  EXPECT_EQ(last.size(), longer + 1);  // padded, then the line's end
}

TEST_F(PrinterTest, WaitingMessagesAreSaidOnceAndOnlyWhenJoiningTakesLong) {
  ProgressPrinter printer(file_, /*terminal=*/false, absl::Seconds(10),
                          /*resume=*/false);
  v1::RunStatus status;
  status.set_phase(v1::RunStatus::WAITING);
  status.set_message("1 of 2 workers");
  printer.Show(status, absl::UnixEpoch());
  printer.Show(status, absl::UnixEpoch() + absl::Seconds(5));
  status.set_message("0 of 2 shards");
  printer.Show(status, absl::UnixEpoch() + absl::Seconds(10));
  printer.Show(status, absl::UnixEpoch() + absl::Seconds(60));
  EXPECT_EQ(Printed(), "0 of 2 shards\n");
}

TEST_F(PrinterTest, LeavesTheWordOnTheEndToItsCaller) {
  ProgressPrinter printer(file_, /*terminal=*/false, absl::Seconds(10),
                          /*resume=*/false);
  v1::RunStatus status;
  for (const auto phase : {v1::RunStatus::COMPLETE, v1::RunStatus::STOPPED,
                           v1::RunStatus::FAILED}) {
    status.set_phase(phase);
    status.set_message("over");
    printer.Show(status, absl::UnixEpoch());
  }
  EXPECT_EQ(Printed(), "");
}

TEST_F(PrinterTest, AResumedRunSaysFirstAndOnceWhereItBegins) {
  ProgressPrinter printer(file_, /*terminal=*/false, absl::Seconds(10),
                          /*resume=*/true);
  v1::RunStatus status = Training();
  status.set_first_step(40);
  printer.Show(status, absl::UnixEpoch());
  printer.Show(status, absl::UnixEpoch() + absl::Seconds(20));
  const std::string line = ProgressLine(status) + "\n";
  EXPECT_EQ(Printed(), "resuming from step 40 of 100\n" + line + line);
}

TEST_F(PrinterTest, ARunThatIsOverBeforeItWasSeenSaysWhereItBeganAllTheSame) {
  ProgressPrinter printer(file_, false, absl::Seconds(10), /*resume=*/true);
  v1::RunStatus status;
  status.set_phase(v1::RunStatus::WAITING);
  printer.Show(status, absl::UnixEpoch());
  status.set_phase(v1::RunStatus::COMPLETE);
  status.set_first_step(40);
  status.set_total_steps(80);
  printer.Show(status, absl::UnixEpoch());
  EXPECT_EQ(Printed(), "resuming from step 40 of 80\n");
}

TEST_F(PrinterTest, NoticesAreShownOnce) {
  ProgressPrinter printer(file_, false, absl::Seconds(10), /*resume=*/false);
  v1::RunStatus status;
  status.set_phase(v1::RunStatus::WAITING);
  status.add_notices("one");
  printer.Show(status, absl::UnixEpoch());
  printer.Show(status, absl::UnixEpoch());
  EXPECT_EQ(Printed(), "note: one\n");
  status.add_notices("two");
  printer.Show(status, absl::UnixEpoch());
  EXPECT_EQ(Printed(), "note: one\nnote: two\n");
}

TEST(ResumeLineTest, SaysThatThereIsNothingToResume) {
  v1::RunStatus status;
  status.set_total_steps(100);
  EXPECT_EQ(ResumeLine(status), "nothing to resume: training begins at step 0");
}

TEST(ShellCommandTest, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(ShellCommand({"build/bin/rivulet", "train", "a b.yaml", "--set",
                          "model.hidden=[1, 2]", "it's", ""}),
            "build/bin/rivulet train 'a b.yaml' --set 'model.hidden=[1, 2]' "
            R"('it'\''s' '')");
}

TEST(ClosingLinesTest, SayAccuracyTrafficAndFiles) {
  RV_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      ClosingLines(R"({"status": "complete", "test_accuracy": 0.9123,
        "bytes_up": 10000000, "bytes_down": 5000000, "dense_bytes_up": 1e9,
        "dense_bytes_down": 1e9, "ratio": 133.3, "seconds": 125,
        "samples_per_second": 900, "steps": 1400})",
                   "runs/q", "again"));
  EXPECT_THAT(text, HasSubstr("91.23 %"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "10.0 MB up, 5.00 MB down; dense would be 2.00 GB: 133 times less"));
  EXPECT_THAT(text, HasSubstr("2:05"));
  EXPECT_THAT(text, HasSubstr("runs/q: weights.safetensors, "));
  EXPECT_THAT(text, Not(HasSubstr("again")));
}

TEST(ClosingLinesTest, StoppedRunSaysHowToGoOn) {
  RV_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      ClosingLines(R"({"status": "stopped", "steps": 40})", "runs/q",
                   "rivulet train q.yaml --resume"));
  EXPECT_THAT(text, HasSubstr("after step 40\n"));
  EXPECT_THAT(text, HasSubstr("rivulet train q.yaml --resume\n"));
  EXPECT_THAT(text, HasSubstr("runs/q: checkpoints/, "));
  EXPECT_THAT(text, Not(HasSubstr("weights.safetensors")));
}

TEST(ClosingLinesTest, DamagedSummaryIsNamed) {
  EXPECT_THAT(
      ClosingLines("{", "runs/q", "").status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("runs/q/summary.json")));
}

}  // namespace
}  // namespace rivulet
