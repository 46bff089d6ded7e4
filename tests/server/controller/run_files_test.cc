#include "server/controller/run_files.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/daemon/version.h"
#include "nlohmann/json.hpp"
#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::PlanOf;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::HasSubstr;

MetricsRow Row(int64_t step) {
  MetricsRow row;
  row.seconds = 1.5;
  row.step = step;
  row.epoch = 0.25;
  row.train_loss = 2.5;
  row.train_accuracy = 0.125;
  row.samples_per_second = 100;
  row.totals.bytes_up = 12345678901;
  row.totals.bytes_down = 2;
  row.totals.payload_up = 3;
  row.totals.payload_down = 4;
  row.ratio = 20.5;
  return row;
}

TEST(RunFilesTest, AMetricsLineHasAColumnForEachNameInTheHeader) {
  EXPECT_EQ(MetricsHeader(),
            "seconds,step,epoch,train_loss,train_accuracy,test_loss,"
            "test_accuracy,samples_per_second,bytes_up,bytes_down,payload_up,"
            "payload_down,ratio,voided");
  EXPECT_EQ(MetricsLine(Row(7)),
            "1.5,7,0.25,2.5,0.125,,,100,12345678901,2,3,4,20.5,0");
  MetricsRow row = Row(7);
  row.train_loss.reset();
  row.train_accuracy.reset();
  row.test = {.step = 7, .loss = 0.5, .accuracy = 0.75};
  EXPECT_EQ(MetricsLine(row),
            "1.5,7,0.25,,,0.5,0.75,100,12345678901,2,3,4,20.5,0");
}

TEST(RunFilesTest, AResumedRunKeepsTheRowsBeforeItsFirstStep) {
  const TempFolder folder;
  const std::string path = folder.File("metrics.csv");
  {
    RV_ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path, 0));
    for (int64_t step : {5, 10, 15}) RV_ASSERT_OK(file.Append(Row(step)));
  }
  WriteBytes(path, ReadBytes(path) + "1.5,20,0.2");  // cut by a crash
  RV_ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path, 10));
  RV_ASSERT_OK(file.Append(Row(12)));
  EXPECT_EQ(
      ReadBytes(path),
      absl::StrCat(MetricsHeader(), "\n", MetricsLine(Row(5)), "\n",
                   MetricsLine(Row(10)), "\n", MetricsLine(Row(12)), "\n"));
  RV_ASSERT_OK(MetricsFile::Open(path, 0).status());
  EXPECT_EQ(ReadBytes(path), absl::StrCat(MetricsHeader(), "\n"));
}

TEST(RunFilesTest, TheSummaryHasEveryPromisedKey) {
  const auto plan = PlanOf(SmallConfig("fixed", 2, 1));
  RunMetrics metrics({.workers = 2,
                      .parameters = plan->manifest().num_parameters(),
                      .steps_per_epoch = plan->steps_per_epoch(),
                      .total_steps = plan->total_steps()},
                     0, {});
  v1::Finished finished;
  finished.set_step(80);
  finished.set_train_seconds(2);
  finished.set_samples(640);
  finished.mutable_traffic()->set_wire_up(1000);
  finished.mutable_traffic()->set_payload_up(900);
  metrics.AddFinished(0, finished);
  v1::EvaluationResult part;
  part.set_correct(3);
  part.set_samples(4);
  metrics.AddEvaluation(0, part);
  metrics.AddEvaluation(1, part);
  const auto json =
      nlohmann::json::parse(SummaryJson(*plan, metrics,
                                        {.status = "complete",
                                         .error = "",
                                         .job = "abc",
                                         .weights_sha256 = "def"}),
                            nullptr, false);
  ASSERT_TRUE(json.is_object());
  for (const char* key : {"status",
                          "steps",
                          "epochs",
                          "test_accuracy",
                          "train_loss",
                          "seconds",
                          "samples_per_second",
                          "bytes_up",
                          "bytes_down",
                          "payload_up",
                          "payload_down",
                          "dense_bytes_up",
                          "dense_bytes_down",
                          "ratio",
                          "ratio_steady_up",
                          "workers",
                          "shards",
                          "seed",
                          "weights_sha256",
                          "version",
                          "host"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["status"], "complete");
  EXPECT_FALSE(json.contains("error"));
  EXPECT_EQ(json["steps"], 80);
  EXPECT_EQ(json["epochs"], 10.0);
  EXPECT_EQ(json["test_accuracy"], 0.75);
  EXPECT_EQ(json["bytes_up"], 1000);
  EXPECT_EQ(json["payload_up"], 900);
  EXPECT_EQ(json["dense_bytes_up"],
            4 * plan->manifest().num_parameters() * 2 * 80);
  EXPECT_EQ(json["samples_per_second"], 320.0);
  EXPECT_EQ(json["version"], kVersion);
  EXPECT_THAT(json["host"].get<std::string>(), HasSubstr("core"));
  EXPECT_TRUE(json["train_loss"].is_null()) << "no report came";
}

TEST(RunFilesTest, AFailedRunsSummarySaysWhyInValidJsonWhateverThePeerWrote) {
  const auto plan = PlanOf(SmallConfig("fixed"));
  const RunMetrics metrics({.workers = 2}, 0, {});
  const std::string text = SummaryJson(*plan, metrics,
                                       {.status = "failed",
                                        .error = "bad \xff\" byte",
                                        .job = "",
                                        .weights_sha256 = ""});
  const auto json = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(json.is_object()) << text;
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("bad"));
  EXPECT_TRUE(json["weights_sha256"].is_null());
  EXPECT_EQ(StatusOfSummary(text), "failed");
  EXPECT_EQ(StatusOfSummary("{"), "");
  EXPECT_EQ(StatusOfSummary("{\"status\": 3}"), "");
}

TEST(RunFilesTest, ProgressComesBackAsItWas) {
  const RunTotals totals = {.bytes_up = 1,
                            .bytes_down = int64_t{1} << 60,
                            .payload_up = 3,
                            .payload_down = 4,
                            .steady_bytes_up = 5,
                            .steady_worker_steps = 6,
                            .samples = 7,
                            .seconds = 0.1};
  RV_ASSERT_OK_AND_ASSIGN(RunTotals back,
                          ParseProgressJson("p", ProgressJson(totals)));
  EXPECT_EQ(back.bytes_down, int64_t{1} << 60);
  EXPECT_EQ(back.samples, 7);
  EXPECT_EQ(back.seconds, 0.1);
  EXPECT_THAT(
      ParseProgressJson("p", "{}").status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("p: no integer")));
  EXPECT_THAT(ParseProgressJson("p", "").status(),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace rivulet
