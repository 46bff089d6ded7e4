#include "server/controller/summary.h"

#include <string>

#include "common/daemon/version.h"
#include "nlohmann/json.hpp"
#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::PlanOf;
using ::rivulet::testing::SmallConfig;
using ::testing::HasSubstr;

TEST(SummaryTest, TheSummaryHasEveryPromisedKey) {
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

TEST(SummaryTest, AFailedRunsSummarySaysWhyInValidJsonWhateverThePeerWrote) {
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

}  // namespace
}  // namespace rivulet
