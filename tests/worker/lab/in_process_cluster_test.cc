// A run in one process against the same run by daemons, against itself on other
// numbers of cores, interrupted, and broken.

#include "worker/lab/in_process_cluster.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/daemon/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ClusterResult;
using ::rivulet::testing::FreshDir;
using ::rivulet::testing::RunCluster;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

nlohmann::json SummaryOf(const std::string& dir) {
  std::ifstream in(dir + "/summary.json");
  return nlohmann::json::parse(in, nullptr, false);
}

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
  config.data.augment = "pad_crop_flip";
  config.train.batch_size = 8;
  config.train.max_steps = 6;
  config.train.statistics_batches = 2;
  config.compression.min_moves = 0;
  config.compression.density = 0.05;
  return config;
}

// A lab's run of `config` must end in the same weights, accuracy and loss as
// the daemons' (losses are added in the order of arrival).
void ExpectEqualsDaemons(const Config& config) {
  const ClusterResult daemons =
      RunCluster(config, {.run_dir = FreshDir("daemons")});
  RV_ASSERT_OK(daemons.status);
  const std::string dir = FreshDir("lab");
  const absl::StatusOr<InProcessOutcome> lab =
      RunInProcess(config, {.run_dir = dir});
  RV_ASSERT_OK(lab);
  EXPECT_EQ(lab->weights_sha256.size(), 64u);
  EXPECT_EQ(lab->weights_sha256, daemons.summary["weights_sha256"]);
  const nlohmann::json summary = nlohmann::json::parse(lab->summary_json);
  EXPECT_EQ(summary, SummaryOf(dir));
  EXPECT_EQ(summary["status"], "complete");
  for (const char* same : {"weights_sha256", "test_accuracy", "train_accuracy",
                           "steps", "dense_bytes_up", "payload_up",
                           "payload_down", "voided", "workers", "shards"}) {
    EXPECT_EQ(summary[same], daemons.summary[same]) << same;
  }
  EXPECT_NEAR(summary["train_loss"].get<double>(),
              daemons.summary["train_loss"].get<double>(), 1e-9);
}

struct Shape {
  int workers;
  int shards;
  const char* policy;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.policy << ", " << shape.workers << " workers, " << shape.shards
       << " shards";
}

class InProcessEqualsDaemonsTest : public ::testing::TestWithParam<Shape> {};

TEST_P(InProcessEqualsDaemonsTest, Perceptron) {
  Config config = SmallConfig();
  config.cluster.workers = GetParam().workers;
  config.cluster.shards = GetParam().shards;
  config.compression.policy = GetParam().policy;
  ExpectEqualsDaemons(config);
}

TEST_P(InProcessEqualsDaemonsTest, ResNet) {
  Config config = SmallResNet();
  config.cluster.workers = GetParam().workers;
  config.cluster.shards = GetParam().shards;
  config.compression.policy = GetParam().policy;
  ExpectEqualsDaemons(config);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, InProcessEqualsDaemonsTest,
    ::testing::Values(Shape{1, 1, "none"}, Shape{2, 2, "none"},
                      Shape{4, 3, "none"}, Shape{1, 2, "fixed"},
                      Shape{2, 3, "fixed"}, Shape{4, 1, "fixed"},
                      Shape{1, 3, "warmup"}, Shape{2, 1, "warmup"},
                      Shape{4, 2, "warmup"}),
    [](const ::testing::TestParamInfo<Shape>& shape) {
      return absl::StrCat(shape.param.policy, shape.param.workers, "x",
                          shape.param.shards);
    });

TEST(InProcessClusterTest, TheNumberOfCoresDoesNotChangeBits) {
  Config config = SmallResNet();
  config.cluster.workers = 4;
  std::string first;
  for (const int cores : {1, 2, 3, 4}) {
    const absl::StatusOr<InProcessOutcome> run = RunInProcess(
        config, {.run_dir = FreshDir(absl::StrCat(cores)), .cores = cores});
    RV_ASSERT_OK(run);
    if (first.empty()) first = run->weights_sha256;
    EXPECT_EQ(run->weights_sha256, first) << cores << " cores";
  }
}

TEST(InProcessClusterTest, BytesAreThoseOfTheDaemons) {
  Config config = SmallConfig();
  config.cluster.shards = 3;
  // Nothing that comes by time: no reports between evaluations, no marks.
  config.report.every = absl::Hours(1);
  config.checkpoint.every_steps = 0;
  const ClusterResult daemons =
      RunCluster(config, {.run_dir = FreshDir("daemons")});
  RV_ASSERT_OK(daemons.status);
  const std::string dir = FreshDir("lab");
  RV_ASSERT_OK(RunInProcess(config, {.run_dir = dir}));
  const nlohmann::json lab = SummaryOf(dir);
  for (const char* key : {"payload_up", "payload_down"}) {
    EXPECT_EQ(lab[key], daemons.summary[key]) << key;
  }
  // Three shards say an address, and both workers and shards are told all of
  // them; a number in a report may need a byte more or less.
  const auto difference = [&](const char* key) {
    return lab[key].get<double>() - daemons.summary[key].get<double>();
  };
  EXPECT_LE(std::abs(difference("bytes_up")), 3 * 6 + 2 * 5 * 8);
  EXPECT_LE(std::abs(difference("bytes_down")), 5 * 3 * 6);
  EXPECT_NEAR(lab["ratio"].get<double>(),
              daemons.summary["ratio"].get<double>(),
              0.001 * daemons.summary["ratio"].get<double>());
}

// Polled at every step, so that it is exactly known what has been done.
std::function<bool()> AtCall(int64_t call) {
  return [call, calls = std::make_shared<std::atomic<int64_t>>(0)] {
    return ++*calls >= call;
  };
}

TEST(InProcessClusterTest, StoppedAndResumedEndsInTheSameBits) {
  Config config = SmallConfig();
  config.compression.policy = "warmup";
  const absl::StatusOr<InProcessOutcome> whole =
      RunInProcess(config, {.run_dir = FreshDir("whole")});
  RV_ASSERT_OK(whole);
  const std::string dir = FreshDir("parts");
  int64_t done = 0;
  for (int part = 0; part < 3; ++part) {
    EXPECT_THAT(
        RunInProcess(
            config,
            {.run_dir = dir, .resume = part > 0, .stop_requested = AtCall(20)}),
        StatusIs(absl::StatusCode::kCancelled, HasSubstr("--resume goes on")));
    const nlohmann::json summary = SummaryOf(dir);
    EXPECT_EQ(summary["status"], "stopped");
    EXPECT_GT(summary["steps"].get<int64_t>(), done);
    EXPECT_LT(summary["steps"].get<int64_t>(), 64);
    done = summary["steps"];
  }
  const absl::StatusOr<InProcessOutcome> resumed =
      RunInProcess(config, {.run_dir = dir, .resume = true});
  RV_ASSERT_OK(resumed);
  EXPECT_EQ(resumed->weights_sha256, whole->weights_sha256);
  EXPECT_EQ(SummaryOf(dir)["steps"], 64);
}

TEST(InProcessClusterTest, DaemonsGoOnWithWhatWasBegunHereAndTheOtherWayRound) {
  const Config config = SmallResNet();
  const absl::StatusOr<InProcessOutcome> whole =
      RunInProcess(config, {.run_dir = FreshDir("whole")});
  RV_ASSERT_OK(whole);

  const std::string begun_here = FreshDir("begun-here");
  ASSERT_THAT(RunInProcess(
                  config, {.run_dir = begun_here, .stop_requested = AtCall(3)}),
              StatusIs(absl::StatusCode::kCancelled));
  const ClusterResult daemons =
      RunCluster(config, {.run_dir = begun_here, .resume = true});
  RV_ASSERT_OK(daemons.status);
  EXPECT_EQ(daemons.summary["weights_sha256"], whole->weights_sha256);

  const std::string begun_there = FreshDir("begun-there");
  ASSERT_THAT(
      RunCluster(config, {.run_dir = begun_there, .stop_at_step = 2}).status,
      StatusIs(absl::StatusCode::kCancelled));
  const absl::StatusOr<InProcessOutcome> here =
      RunInProcess(config, {.run_dir = begun_there, .resume = true});
  RV_ASSERT_OK(here);
  EXPECT_EQ(here->weights_sha256, whole->weights_sha256);
}

// With every_steps = 20 the first mark is decided when 20 steps are done, is
// stamped into the update of step 20, and so makes checkpoint 21; of the three
// sets of 64 steps the newest two stay.
TEST(InProcessClusterTest, CheckpointsByStepsComeWhenTheyAreDue) {
  const std::string dir = FreshDir("run");
  RV_ASSERT_OK(RunInProcess(SmallConfig(), {.run_dir = dir}));
  const RunPaths paths(dir);
  for (const char* set : {"step-0000000041", "step-0000000061"}) {
    EXPECT_TRUE(
        std::filesystem::exists(paths.checkpoints() + "/" + set + "/COMPLETE"))
        << set;
    for (const char* member : {"worker-0", "worker-1", "shard-0", "shard-1"}) {
      EXPECT_TRUE(std::filesystem::exists(absl::StrCat(
          paths.checkpoints(), "/", set, "/", member, ".safetensors")))
          << set << " of " << member;
    }
  }
}

TEST(InProcessClusterTest, CheckpointsByTimeComeToo) {
  Config config = SmallConfig();
  config.checkpoint.every_steps = 0;
  config.checkpoint.every = absl::Milliseconds(1);
  config.train.max_steps = 12;
  config.compression.min_moves = 0;
  const std::string dir = FreshDir("run");
  RV_ASSERT_OK(RunInProcess(config, {.run_dir = dir}));
  int complete = 0;
  for (const auto& set :
       std::filesystem::directory_iterator(RunPaths(dir).checkpoints())) {
    if (std::filesystem::exists(set.path() / "COMPLETE")) ++complete;
  }
  EXPECT_EQ(complete, config.checkpoint.keep);
}

// A disk that fails in the middle of a set: the run ends for all with that
// error, as where a process is killed, and goes on from the set before.
TEST(InProcessClusterTest, ASaveThatFailsEndsTheRunAndResumesInTheSameBits) {
  const Config config = SmallConfig();
  const absl::StatusOr<InProcessOutcome> whole =
      RunInProcess(config, {.run_dir = FreshDir("whole")});
  RV_ASSERT_OK(whole);
  for (const char* member : {"worker-1", "shard-1", "shard-0"}) {
    const std::string dir = FreshDir(member);
    // A folder where the file of the second set goes, once the run has begun
    // and before that set is due: two workers take 50 calls for 25 steps.
    const std::string path =
        absl::StrCat(RunPaths(dir).checkpoints(), "/step-0000000041/", member,
                     ".safetensors");
    const absl::Status failed =
        RunInProcess(config,
                     {.run_dir = dir,
                      .stop_requested =
                          [path, due = AtCall(50)] {
                            if (due()) {
                              std::filesystem::create_directories(path + "/x");
                            }
                            return false;
                          }})
            .status();
    EXPECT_FALSE(failed.ok()) << member;
    EXPECT_FALSE(absl::IsCancelled(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(path));
    EXPECT_EQ(SummaryOf(dir)["status"], "failed");

    std::filesystem::remove_all(path);
    const absl::StatusOr<InProcessOutcome> resumed =
        RunInProcess(config, {.run_dir = dir, .resume = true});
    RV_ASSERT_OK(resumed);
    EXPECT_EQ(resumed->weights_sha256, whole->weights_sha256) << member;
  }
}

// A learning rate that sends the weights beyond what a loss can be computed of.
TEST(InProcessClusterTest, GradientsThatAreNotFiniteEndTheRunAsWithDaemons) {
  Config config = SmallConfig();
  config.optimizer.learning_rate = 1000;
  config.cluster.workers = 1;  // of several any may be the first to give up
  config.cluster.shards = 1;
  config.train.epochs = 40;
  const absl::Status daemons =
      RunCluster(config, {.run_dir = FreshDir("daemons")}).status;
  const std::string dir = FreshDir("lab");
  const absl::Status lab = RunInProcess(config, {.run_dir = dir}).status();
  EXPECT_THAT(daemons, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(lab, daemons);
  EXPECT_EQ(SummaryOf(dir)["status"], "failed");
}

TEST(InProcessClusterTest, MissingDataIsNamedAndLeavesNothingBehind) {
  Config config = SmallConfig();
  config.data.name = "cifar10";
  config.data.path = "/nonexistent/data";
  const std::string dir = FreshDir("run");
  EXPECT_THAT(
      RunInProcess(config, {.run_dir = dir}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/data")));
  EXPECT_FALSE(std::filesystem::exists(dir));
}

TEST(InProcessClusterTest, AFolderThatHoldsARunIsRefused) {
  const std::string dir = FreshDir("run");
  RV_ASSERT_OK(RunInProcess(SmallConfig(), {.run_dir = dir}));
  EXPECT_THAT(RunInProcess(SmallConfig(), {.run_dir = dir}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(dir)));
  EXPECT_THAT(RunInProcess(SmallConfig(), {.run_dir = dir, .resume = true}),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("nothing is left to resume")));
}

TEST(InProcessClusterTest, AnotherConfigDoesNotResume) {
  Config config = SmallConfig();
  const std::string dir = FreshDir("run");
  ASSERT_THAT(
      RunInProcess(config, {.run_dir = dir, .stop_requested = AtCall(8)}),
      StatusIs(absl::StatusCode::kCancelled));
  config.train.seed = 2;
  EXPECT_THAT(
      RunInProcess(config, {.run_dir = dir, .resume = true}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("train.seed")));
}

TEST(InProcessClusterTest, ProgressEndsWithTheEnd) {
  v1::RunStatus last;
  int calls = 0;
  RV_ASSERT_OK(RunInProcess(
      SmallConfig(),
      {.run_dir = FreshDir("run"), .progress = [&](const v1::RunStatus& s) {
         last = s;
         ++calls;
       }}));
  EXPECT_GE(calls, 1);
  EXPECT_EQ(last.phase(), v1::RunStatus::COMPLETE);
  EXPECT_EQ(last.step(), 64u);
}

}  // namespace
}  // namespace rivulet
