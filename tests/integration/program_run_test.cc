// The programs, run as a person runs them: runs, stops and resumes.

#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/daemon/config.h"
#include "common/daemon/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/program_test_util.h"
#include "tests/testing/cluster.h"
#include "worker/cli/child.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ExpectOneLine;
using ::rivulet::testing::Outcome;
using ::rivulet::testing::ProgramTest;
using ::rivulet::testing::SmallConfig;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

TEST_F(ProgramTest, TrainLeavesAWholeRunFolderAndEvalAgreesWithIt) {
  const Outcome trained = Run(
      "rivulet", {"train", WriteConfig(SmallConfig()), "--run-dir", RunDir()});
  ASSERT_EQ(trained.code, kExitOk) << trained.output;
  EXPECT_THAT(trained.output,
              AllOf(HasSubstr("test accuracy"), HasSubstr("times less"),
                    HasSubstr(RunDir())));
  for (const char* name :
       {"config.yaml", "metrics.csv", "summary.json", "weights.safetensors",
        "checkpoints", "logs/controller.log", "logs/worker-0.log",
        "logs/worker-1.log", "logs/shard-0.log", "logs/shard-1.log"}) {
    EXPECT_TRUE(fs::exists(RunDir() + "/" + name)) << name;
  }
  ExpectNothingLeft();

  const Outcome evaluated = Run("rivulet", {"eval", RunDir(), "--json"});
  ASSERT_EQ(evaluated.code, kExitOk) << evaluated.output;
  const nlohmann::json json = nlohmann::json::parse(evaluated.output);
  EXPECT_EQ(json["test_accuracy"], Summary()["test_accuracy"]);
}

TEST_F(ProgramTest, InspectTellsWhatARunLeft) {
  Config config = SmallConfig();
  config.report.frames_every = 5;
  const Outcome trained =
      Run("rivulet", {"train", WriteConfig(config), "--run-dir", RunDir()});
  ASSERT_EQ(trained.code, kExitOk) << trained.output;

  const std::string weights = RunDir() + "/weights.safetensors";
  const Outcome of_weights = Run("rivulet", {"inspect", weights, "--json"});
  ASSERT_EQ(of_weights.code, kExitOk) << of_weights.output;
  const nlohmann::json tensors = nlohmann::json::parse(of_weights.output);
  EXPECT_EQ(tensors["kind"], "tensors");
  EXPECT_GT(tensors["tensors"][0]["rms"], 0);
  EXPECT_EQ(tensors["tensors"][0]["not_finite"], 0);
  const Outcome text = Run("rivulet", {"inspect", weights});
  EXPECT_THAT(text.output,
              HasSubstr(tensors["tensors"][0]["name"].get<std::string>()));

  const std::string folder = RunDir() + "/frames/step-0000000005/";
  int64_t dense_bytes = 0;
  for (const char* name :
       {"worker-0-shard-0-push.frames", "worker-1-shard-1-push.frames",
        "worker-0-shard-1-update.frames"}) {
    const std::string path = folder + name;
    const Outcome of_frames = Run("rivulet", {"inspect", path, "--json"});
    ASSERT_EQ(of_frames.code, kExitOk) << of_frames.output;
    const nlohmann::json frames = nlohmann::json::parse(of_frames.output);
    EXPECT_EQ(frames["bytes"], fs::file_size(path));
    EXPECT_FALSE(frames["blocks"].empty());
    dense_bytes = frames["dense_bytes"];
    EXPECT_LT(frames["bytes"], dense_bytes);
    EXPECT_EQ(Run("rivulet", {"inspect", path}).code, kExitOk);
  }

  // Away from its run, a file of frames needs to be told what it is of.
  const std::string moved = RunDir() + "/moved";
  fs::copy_file(folder + "worker-0-shard-0-push.frames", moved);
  ExpectOneLine(Run("rivulet", {"inspect", moved}), kExitUsage,
                "allowed: a file below RUN/frames, or --config");
  const std::string its_config = RunDir() + "/config.yaml";
  ExpectOneLine(Run("rivulet", {"inspect", moved, "--config", its_config}),
                kExitUsage, "no shard in the name");
  EXPECT_EQ(
      Run("rivulet", {"inspect", moved, "--config", its_config, "--shard", "0"})
          .code,
      kExitOk);
  fs::resize_file(moved, fs::file_size(moved) - 1);
  ExpectOneLine(Run("rivulet",
                    {"inspect", moved, "--config", its_config, "--shard", "0"}),
                kExitData, "cut off");
  ExpectOneLine(Run("rivulet", {"inspect", RunDir() + "/none"}), kExitData,
                "none");
}

TEST_F(ProgramTest, InterruptCheckpointsAndResumeGoesOn) {
  const std::string path = WriteConfig(LongConfig());
  const std::unique_ptr<Child> train =
      Start("rivulet", {"train", path, "--run-dir", RunDir()});
  WaitForMetrics();
  train->Signal(SIGINT);
  const Outcome stopped = End(*train);
  EXPECT_EQ(stopped.code, kExitInterrupted) << stopped.output;
  EXPECT_EQ(Summary().value("status", ""), "stopped");
  const int64_t steps = Summary().value("steps", int64_t{0});
  EXPECT_GT(steps, 0);
  EXPECT_THAT(
      stopped.output,
      AllOf(
          HasSubstr(absl::StrCat("\nrivulet: stopped at step ", steps, " of ")),
          HasSubstr(absl::StrCat(RunDir(), ": checkpoints/")),
          HasSubstr(absl::StrCat(RIVULET_PROGRAM_DIR, "/rivulet train ", path,
                                 " --run-dir ", RunDir(), " --resume\n")),
          Not(HasSubstr("weights.safetensors")), Not(HasSubstr("error"))));
  ExpectNothingLeft();

  // A stopped run is not started over by mistake.
  const std::vector<std::string> files = Files();
  ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", RunDir()}),
                kExitRunFolder, "--resume");
  EXPECT_EQ(Files(), files);

  const int64_t lines = MetricsLines();
  const std::unique_ptr<Child> resumed =
      Start("rivulet", {"train", path, "--run-dir", RunDir(), "--resume"});
  WaitForLine(*resumed, absl::StrCat("resuming from step ", steps, " of "));
  WaitForMetrics(lines + 1);
  resumed->Signal(SIGINT);
  const Outcome again = End(*resumed);
  EXPECT_EQ(again.code, kExitInterrupted) << again.output;
  EXPECT_GT(Summary().value("steps", int64_t{0}), steps);

  // One member has lost its checkpoints: what the others have is not given up.
  for (const auto& entry : fs::directory_iterator(RunDir() + "/checkpoints")) {
    fs::remove(entry.path() / "worker-1.safetensors");
  }
  const std::string summary = Summary().dump();
  ExpectOneLine(
      Run("rivulet", {"train", path, "--run-dir", RunDir(), "--resume"}),
      kExitData, "worker 1 has none; worker 0 has ");
  EXPECT_EQ(Summary().dump(), summary);
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ResumingNothingBeginsAtStepZeroAndSaysSo) {
  const std::unique_ptr<Child> train = Start(
      "rivulet",
      {"train", WriteConfig(LongConfig()), "--run-dir", RunDir(), "--resume"});
  WaitForLine(*train, "nothing to resume: training begins at step 0");
  train->Signal(SIGINT);
  EXPECT_EQ(End(*train).code, kExitInterrupted);
}

// Whatever the children are doing at that moment.
TEST_F(ProgramTest, AnInterruptBeforeTheRunHasBegunEndsTheCommand) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForLine(*train, "training mlp");
  train->Signal(SIGINT);
  const Outcome outcome = End(*train);
  EXPECT_EQ(outcome.code, kExitInterrupted) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("rivulet: stopped "), Not(HasSubstr("error"))));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ADaemonThatStillLooksForTheControllerStopsWhenTold) {
  Config config = LongConfig();
  config.cluster.controller = "127.0.0.1:1";  // nobody is there
  const std::unique_ptr<Child> worker = StartDaemon(
      "rivulet-worker", WriteConfig(config), "run", {"--rank", "0"});
  WaitForLine(*worker, "looking for the controller");
  worker->Signal(SIGTERM);
  const Outcome outcome = End(*worker);
  EXPECT_EQ(outcome.code, kExitInterrupted) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rivulet-worker: told to stop while"));
}

TEST_F(ProgramTest, TwoInterruptsStopAtOnce) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  // A worker that hangs: the first interrupt cannot end the run in order.
  SignalWorker(1, SIGSTOP);
  train->Signal(SIGINT);
  WaitForLine(*train, "stopping after a checkpoint");
  absl::SleepFor(
      absl::Milliseconds(500));  // what comes sooner is one interrupt
  train->Signal(SIGINT);
  const Outcome outcome = End(*train);
  EXPECT_EQ(outcome.code, kExitInterrupted);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("stopping at once"), Not(HasSubstr("error"))));
  ExpectNothingLeft();
}

// As an orchestrator does that signals every process of a group, or a closing
// terminal.
TEST_F(ProgramTest, SignalsToAllProcessesAtOnceAreOneStop) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  for (const int pid : Processes()) kill(pid, SIGTERM);
  train->Signal(SIGHUP);
  const Outcome outcome = End(*train);
  EXPECT_EQ(outcome.code, kExitInterrupted);
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("stopped  "), HasSubstr("to go on"),
            Not(HasSubstr("stopping at once")), Not(HasSubstr("error"))));
  EXPECT_EQ(Summary().value("status", ""), "stopped");
  ExpectNothingLeft();
}

TEST_F(ProgramTest, AStopOfDaemonsStartedByHandEndsEachOfThemAlike) {
  Config config = LongConfig();
  config.cluster.shards = 1;
  const std::string path = WriteConfig(config);
  std::string dial;
  std::vector<std::unique_ptr<Child>> daemons;
  daemons.push_back(StartController(path, &dial));
  daemons.push_back(StartDaemon("rivulet-server", path, "s",
                                {"--shard", "0", "--set", dial}));
  for (const char* rank : {"0", "1"}) {
    daemons.push_back(StartDaemon("rivulet-worker", path,
                                  absl::StrCat("w", rank),
                                  {"--rank", rank, "--set", dial}));
  }
  WaitForMetrics();
  daemons.back()->Signal(SIGTERM);
  for (const std::unique_ptr<Child>& daemon : daemons) {
    const Outcome outcome = End(*daemon);
    EXPECT_EQ(outcome.code, kExitInterrupted) << outcome.output;
    EXPECT_THAT(
        outcome.output,
        AllOf(HasSubstr(absl::StrCat(daemon->name(), ": stopped at step ")),
              HasSubstr("worker-1 was told to stop"), Not(HasSubstr("error"))));
  }
}

}  // namespace
}  // namespace rivulet
