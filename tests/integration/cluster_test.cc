// Whole clusters against oracles: a single process, themselves with other
// timing, themselves interrupted.

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/daemon/run_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cluster.h"
#include "tests/testing/reference_training.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ClusterResult;
using ::rivulet::testing::FreshDir;
using ::rivulet::testing::LargestRelativeDifference;
using ::rivulet::testing::RunCluster;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TrainReference;
using ::testing::HasSubstr;

std::string Sha(const ClusterResult& result) {
  return result.summary.value("weights_sha256", "");
}

// Weights of a run of `config` against plain SGD in one process. Sums over
// workers are taken in fp32 and in another order than one process's, so a step
// differs by some units in the last place (6e-8 of a tensor's norm). Training
// amplifies that, most where a rounding error carries an activation across
// ReLU's kink, so runs are kept short; a wrong weight, sign or slice differs by
// more than 1e-2.
void ExpectEqualsSingleProcess(const Config& config, int slices) {
  const ClusterResult result = RunCluster(config, {.run_dir = FreshDir("run")});
  RV_ASSERT_OK(result.status);
  RV_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const RunPlan> plan,
                          RunPlan::Create(config));
  RV_ASSERT_OK_AND_ASSIGN(const auto reference,
                          TrainReference(*plan, plan->total_steps(), slices));
  EXPECT_LT(LargestRelativeDifference(result.weights, reference), 1e-4);
}

class WorkersTest : public ::testing::TestWithParam<int> {};

TEST_P(WorkersTest, WithoutCompressionEqualSingleProcessSgd) {
  Config config = SmallConfig();
  config.compression.policy = "none";
  config.cluster.workers = GetParam();
  config.train.max_steps = 24;
  // 32 samples do not divide by 3: slices of 11, 11 and 10.
  ExpectEqualsSingleProcess(config, 1);
}

TEST_P(WorkersTest, LosslessDgcPathEqualsMomentumSgd) {
  Config config = SmallConfig();
  config.compression.policy = "lossless";
  config.cluster.workers = GetParam();
  config.train.max_steps = 24;
  ExpectEqualsSingleProcess(config, 1);
}

INSTANTIATE_TEST_SUITE_P(Workers, WorkersTest, ::testing::Values(1, 2, 3, 4));

Config SmallResNet() {
  Config config = SmallConfig();
  config.model.name = "resnet20";
  config.data.synthetic = {.train = 64,
                           .test = 16,
                           .classes = 4,
                           .channels = 3,
                           .height = 16,
                           .width = 16,
                           .seed = 1};
  config.train.batch_size = 8;
  config.train.max_steps = 2;
  config.train.statistics_batches = 2;
  return config;
}

TEST(ClusterTest, GroupNormResNetEqualsSingleProcessSgd) {
  Config config = SmallResNet();
  config.model.norm = "group";
  config.compression.policy = "none";
  config.cluster.workers = 3;
  ExpectEqualsSingleProcess(config, 1);
}

TEST(ClusterTest, BatchNormResNetEqualsSgdWithStatisticsPerSlice) {
  Config config = SmallResNet();
  config.compression.policy = "none";
  config.cluster.workers = 2;
  ExpectEqualsSingleProcess(config, 2);
}

TEST(ClusterTest, PlainMomentumGoesThroughTheLosslessPathToo) {
  Config config = SmallConfig();
  config.compression.policy = "lossless";
  config.optimizer.nesterov = false;
  config.train.max_steps = 24;
  ExpectEqualsSingleProcess(config, 1);
}

TEST(ClusterTest, SameConfigGivesTheSameBitsWhateverTheTiming) {
  const Config config = SmallConfig();
  const ClusterResult undisturbed =
      RunCluster(config, {.run_dir = FreshDir("a")});
  RV_ASSERT_OK(undisturbed.status);
  ASSERT_EQ(Sha(undisturbed).size(), 64u);
  for (const int slow : {0, 1}) {
    const ClusterResult delayed =
        RunCluster(config, {.run_dir = FreshDir(absl::StrCat("slow", slow)),
                            .before_push = [slow](int rank, int64_t step) {
                              if (rank == slow && step % 5 == 0) {
                                absl::SleepFor(absl::Milliseconds(15));
                              }
                            }});
    RV_ASSERT_OK(delayed.status);
    EXPECT_EQ(Sha(delayed), Sha(undisturbed)) << "worker " << slow;
  }
}

TEST(ClusterTest, AnotherSeedGivesOtherBits) {
  Config config = SmallConfig();
  const ClusterResult a = RunCluster(config, {.run_dir = FreshDir("a")});
  config.train.seed = 2;
  const ClusterResult b = RunCluster(config, {.run_dir = FreshDir("b")});
  RV_ASSERT_OK(a.status);
  RV_ASSERT_OK(b.status);
  EXPECT_NE(Sha(a), Sha(b));
}

TEST(ClusterTest, StoppedAndResumedEndsInTheSameBits) {
  Config config = SmallConfig();
  config.compression.policy = "warmup";
  config.compression.warmup.epochs = 1;
  const ClusterResult whole =
      RunCluster(config, {.run_dir = FreshDir("whole")});
  RV_ASSERT_OK(whole.status);

  const std::string dir = FreshDir("parts");
  int64_t stop_at = 7;
  for (int part = 0; part < 3; ++part, stop_at += 13) {
    const ClusterResult stopped = RunCluster(
        config, {.run_dir = dir, .resume = part > 0, .stop_at_step = stop_at});
    ASSERT_THAT(stopped.status, StatusIs(absl::StatusCode::kCancelled,
                                         HasSubstr("stopped at step")));
    EXPECT_EQ(stopped.summary.value("status", ""), "stopped");
    EXPECT_GT(stopped.summary.value("steps", 0), stop_at);
  }
  const ClusterResult resumed =
      RunCluster(config, {.run_dir = dir, .resume = true});
  RV_ASSERT_OK(resumed.status);
  EXPECT_EQ(resumed.summary.value("status", ""), "complete");
  EXPECT_EQ(Sha(resumed), Sha(whole));
  EXPECT_EQ(resumed.summary["steps"], whole.summary["steps"]);
  EXPECT_EQ(resumed.summary["dense_bytes_up"], whole.summary["dense_bytes_up"]);
}

TEST(ClusterTest, ResNetWithBatchNormResumesInTheSameBits) {
  Config config = SmallResNet();
  config.train.max_steps = 8;
  config.compression.density = 1.0;
  config.compression.value_bits = 8;
  const ClusterResult whole =
      RunCluster(config, {.run_dir = FreshDir("whole")});
  RV_ASSERT_OK(whole.status);
  const std::string dir = FreshDir("parts");
  ASSERT_THAT(RunCluster(config, {.run_dir = dir, .stop_at_step = 3}).status,
              StatusIs(absl::StatusCode::kCancelled));
  const ClusterResult resumed =
      RunCluster(config, {.run_dir = dir, .resume = true});
  RV_ASSERT_OK(resumed.status);
  EXPECT_EQ(Sha(resumed), Sha(whole));
}

TEST(ClusterTest, NumberOfShardsDoesNotChangeWhatIsLearned) {
  // Without compression no threshold or scale depends on where a tensor is cut.
  Config config = SmallConfig();
  config.compression.policy = "none";
  config.cluster.shards = 1;
  const ClusterResult one = RunCluster(config, {.run_dir = FreshDir("one")});
  config.cluster.shards = 3;
  const ClusterResult three =
      RunCluster(config, {.run_dir = FreshDir("three")});
  RV_ASSERT_OK(one.status);
  RV_ASSERT_OK(three.status);
  EXPECT_EQ(one.weights, three.weights);
}

TEST(ClusterTest, LearnsTheSyntheticSetUnderCompression) {
  Config config = SmallConfig();
  config.train.epochs = 10;
  config.compression.density = 0.1;
  const ClusterResult result = RunCluster(config, {.run_dir = FreshDir("run")});
  RV_ASSERT_OK(result.status);
  EXPECT_GT(result.summary.value("test_accuracy", 0.0), 0.9);
}

TEST(ClusterTest, SummaryHoldsWhatScriptsRelyOn) {
  const ClusterResult result =
      RunCluster(SmallConfig(), {.run_dir = FreshDir("run")});
  RV_ASSERT_OK(result.status);
  for (const char* key : {"status",
                          "steps",
                          "epochs",
                          "test_accuracy",
                          "train_loss",
                          "seconds",
                          "samples_per_second",
                          "bytes_up",
                          "bytes_down",
                          "dense_bytes_up",
                          "dense_bytes_down",
                          "ratio",
                          "ratio_steady_up",
                          "workers",
                          "shards",
                          "seed",
                          "weights_sha256",
                          "version",
                          "host",
                          "payload_up",
                          "payload_down"}) {
    EXPECT_TRUE(result.summary.contains(key)) << key;
  }
  EXPECT_EQ(result.summary["status"], "complete");
  EXPECT_EQ(result.summary["steps"], 64);
  const double dense =
      4.0 * 2 * 64 * (64 * 32 + 32 + 32 * 16 + 16 + 16 * 4 + 4);
  EXPECT_EQ(result.summary["dense_bytes_up"].get<double>(), dense);
}

TEST(ClusterTest, ASecondRunInTheSameFolderIsRefused) {
  const std::string dir = FreshDir("run");
  RV_ASSERT_OK(RunCluster(SmallConfig(), {.run_dir = dir}).status);
  EXPECT_THAT(RunCluster(SmallConfig(), {.run_dir = dir}).status,
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(dir)));
}

}  // namespace
}  // namespace rivulet
