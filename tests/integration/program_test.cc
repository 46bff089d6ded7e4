// The programs, run as a person runs them: exit codes, one clear line for each
// mistake, nothing left behind.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/daemon/config.h"
#include "common/daemon/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"
#include "worker/cli/child.h"

namespace rivulet {
namespace {

using ::rivulet::testing::SmallConfig;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string output;
};

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RV_ASSERT_OK_AND_ASSIGN(Pipe life, Pipe::Create());
    life_.emplace(std::move(life));
    dir_ = fs::path(::testing::TempDir()) / "program_test" /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  std::unique_ptr<Child> Start(const std::string& program,
                               std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     absl::StrCat(RIVULET_PROGRAM_DIR, "/", program));
    absl::StatusOr<std::unique_ptr<Child>> child =
        Child::Spawn(program, arguments, *life_, nullptr);
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }

  Outcome Run(const std::string& program,
              const std::vector<std::string>& arguments) {
    const std::unique_ptr<Child> child = Start(program, arguments);
    EXPECT_TRUE(child->WaitFor(absl::Seconds(100))) << program;
    const int code = child->Poll().value_or(ChildExit{}).code;
    return {code, absl::StrJoin(child->Tail(), "\n")};
  }

  std::string Write(const std::string& name, const std::string& text) {
    const fs::path path = dir_ / name;
    std::ofstream(path) << text;
    return path;
  }
  std::string WriteConfig(const Config& config) {
    return Write("config.yaml", ToYaml(config));
  }
  std::string RunDir() const { return dir_ / "run"; }

  nlohmann::json Summary() const {
    std::ifstream in(RunDir() + "/summary.json");
    return nlohmann::json::parse(in, nullptr, false);
  }

  // Processes whose command line names this test's folder.
  int ProcessesLeft() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream in(entry.path() / "cmdline", std::ios::binary);
      const std::string line((std::istreambuf_iterator<char>(in)), {});
      if (line.find(dir_) != std::string::npos) ++count;
    }
    return count;
  }
  void ExpectNothingLeft() const {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (ProcessesLeft() > 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_EQ(ProcessesLeft(), 0);
  }
  int64_t MetricsLines() const {
    std::ifstream in(RunDir() + "/metrics.csv");
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
  // Waits until the run has reported since metrics.csv had `lines` lines; the
  // first is its header.
  void WaitForMetrics(int64_t lines = 1) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(90);
    while (absl::Now() < deadline) {
      if (MetricsLines() > lines) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "no metrics in time";
  }
  // Waits until `child` has said `text`.
  static void WaitForLine(const Child& child, const std::string& text) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (absl::Now() < deadline) {
      if (absl::StrContains(absl::StrJoin(child.Tail(), "\n"), text)) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "'" << text << "' was not said in time";
  }

  static Config LongConfig() {
    Config config = SmallConfig();
    config.train.epochs = 100000;
    config.train.evaluate_every_epochs = 0;
    config.compression.density = 0.2;
    config.report.every = absl::Milliseconds(100);
    config.checkpoint.every_steps = 0;
    config.checkpoint.every = absl::Minutes(5);
    return config;
  }

  fs::path dir_;
  std::optional<Pipe> life_;
};

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

TEST_F(ProgramTest, InterruptCheckpointsAndResumeGoesOn) {
  Config config = LongConfig();
  const std::string path = WriteConfig(config);
  const std::unique_ptr<Child> train =
      Start("rivulet", {"train", path, "--run-dir", RunDir()});
  WaitForMetrics();
  train->Signal(SIGINT);
  ASSERT_TRUE(train->WaitFor(absl::Seconds(60)));
  EXPECT_EQ(train->Poll()->code, kExitOk) << absl::StrJoin(train->Tail(), "\n");
  EXPECT_EQ(Summary().value("status", ""), "stopped");
  const int64_t steps = Summary().value("steps", int64_t{0});
  EXPECT_GT(steps, 0);
  ExpectNothingLeft();

  // A stopped run is not started over by mistake.
  EXPECT_EQ(Run("rivulet", {"train", path, "--run-dir", RunDir()}).code,
            kExitRunFolder);

  const int64_t lines = MetricsLines();
  const std::unique_ptr<Child> resumed =
      Start("rivulet", {"train", path, "--run-dir", RunDir(), "--resume"});
  WaitForMetrics(lines + 1);
  resumed->Signal(SIGINT);
  ASSERT_TRUE(resumed->WaitFor(absl::Seconds(60)));
  EXPECT_EQ(resumed->Poll()->code, kExitOk)
      << absl::StrJoin(resumed->Tail(), "\n");
  EXPECT_GT(Summary().value("steps", int64_t{0}), steps);
}

TEST_F(ProgramTest, TwoInterruptsStopAtOnce) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  train->Signal(SIGINT);
  absl::SleepFor(absl::Milliseconds(1));
  train->Signal(SIGINT);
  ASSERT_TRUE(train->WaitFor(absl::Seconds(20)));
  // The first may already have ended the run in order.
  EXPECT_THAT(train->Poll()->code,
              ::testing::AnyOf(int{kExitInterrupted}, int{kExitOk}));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, KilledParentLeavesNoProcess) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  EXPECT_GE(ProcessesLeft(), 6);
  train->Signal(SIGKILL);
  ASSERT_TRUE(train->WaitFor(absl::Seconds(10)));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, KilledWorkerEndsTheRunAndIsNamed) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string line((std::istreambuf_iterator<char>(in)), {});
    if (absl::StrContains(line, "rivulet-worker") &&
        absl::StrContains(line, std::string(dir_)) &&
        absl::StrContains(line, std::string("--rank\0001", 8))) {
      kill(std::stoi(entry.path().filename()), SIGKILL);
    }
  }
  ASSERT_TRUE(train->WaitFor(absl::Seconds(60)));
  EXPECT_NE(train->Poll()->code, kExitOk);
  EXPECT_THAT(absl::StrJoin(train->Tail(), "\n"),
              HasSubstr("worker-1: was killed by signal 9"));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, MissingDataFolderIsOneClearLine) {
  Config config = SmallConfig();
  config.data.name = "cifar10";
  config.data.path = dir_ / "nothing-here";
  const Outcome outcome =
      Run("rivulet", {"train", WriteConfig(config), "--run-dir", RunDir()});
  EXPECT_EQ(outcome.code, kExitData) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("nothing-here"));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ConfigMistakesAreUsageErrorsThatNameFileLineAndKey) {
  const std::string path = Write("bad.yaml", "name: x\ntrain:\n  epoch: 3\n");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"check", path},
        std::vector<std::string>{"train", path, "--run-dir", RunDir()}}) {
    const Outcome outcome = Run("rivulet", arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << outcome.output;
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("bad.yaml:3"), HasSubstr("train.epoch"),
                      HasSubstr("did you mean epochs")));
  }
  EXPECT_FALSE(fs::exists(RunDir()));
}

TEST_F(ProgramTest, EachDaemonRefusesABadConfigItself) {
  const std::string path = Write("bad.yaml", "train: {batch_size: many}\n");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"rivulet-controller"},
        std::vector<std::string>{"rivulet-server", "--shard", "0"},
        std::vector<std::string>{"rivulet-worker", "--rank", "0"}}) {
    std::vector<std::string> arguments(command.begin() + 1, command.end());
    arguments.insert(arguments.end(),
                     {"--config", path, "--run-dir", RunDir()});
    const Outcome outcome = Run(command[0], arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << command[0] << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("train.batch_size")) << command[0];
  }
}

TEST_F(ProgramTest, BusyPortIsNamed) {
  Config config = LongConfig();
  config.cluster.controller = "127.0.0.1:39611";
  config.cluster.join_timeout = absl::Seconds(60);
  const std::string path = WriteConfig(config);
  const std::unique_ptr<Child> first =
      Start("rivulet-controller", {"--config", path, "--run-dir", RunDir()});
  WaitForLine(*first, "listening on");
  const Outcome second =
      Run("rivulet-controller",
          {"--config", path, "--run-dir", RunDir() + "-second"});
  EXPECT_EQ(second.code, kExitUnavailable) << second.output;
  EXPECT_THAT(second.output, HasSubstr("127.0.0.1:39611"));
}

TEST_F(ProgramTest, SaysWhoIsMissingAndGivesUpAtTheDeadline) {
  Config config = LongConfig();
  config.cluster.controller = "127.0.0.1:39612";
  config.cluster.join_timeout = absl::Seconds(3);
  config.cluster.shards = 1;
  const std::string path = WriteConfig(config);
  const std::unique_ptr<Child> controller =
      Start("rivulet-controller", {"--config", path, "--run-dir", RunDir()});
  const std::unique_ptr<Child> shard =
      Start("rivulet-server",
            {"--config", path, "--shard", "0", "--run-dir", RunDir() + "-s"});
  const std::unique_ptr<Child> worker =
      Start("rivulet-worker",
            {"--config", path, "--rank", "0", "--run-dir", RunDir() + "-w"});
  ASSERT_TRUE(controller->WaitFor(absl::Seconds(30)));
  EXPECT_EQ(controller->Poll()->code, kExitUnavailable);
  EXPECT_THAT(absl::StrJoin(controller->Tail(), "\n"), HasSubstr("worker 1"));
  ASSERT_TRUE(worker->WaitFor(absl::Seconds(30)));
  EXPECT_NE(worker->Poll()->code, kExitOk);
  ASSERT_TRUE(shard->WaitFor(absl::Seconds(30)));
  EXPECT_NE(shard->Poll()->code, kExitOk);
}

TEST_F(ProgramTest, EveryShippedConfigIsValid) {
  int configs = 0;
  for (const auto& entry :
       fs::directory_iterator(RIVULET_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const Outcome outcome = Run("rivulet", {"check", entry.path()});
    EXPECT_EQ(outcome.code, kExitOk) << outcome.output;
    ++configs;
  }
  EXPECT_GE(configs, 4);
}

TEST_F(ProgramTest, HelpHasExamplesEverywhere) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"rivulet"},
        std::vector<std::string>{"rivulet", "train"},
        std::vector<std::string>{"rivulet", "eval"},
        std::vector<std::string>{"rivulet", "check"},
        std::vector<std::string>{"rivulet", "bench", "model"},
        std::vector<std::string>{"rivulet-controller"},
        std::vector<std::string>{"rivulet-server"},
        std::vector<std::string>{"rivulet-worker"}}) {
    std::vector<std::string> arguments(command.begin() + 1, command.end());
    arguments.push_back("--help");
    const Outcome outcome = Run(command[0], arguments);
    EXPECT_EQ(outcome.code, kExitOk);
    EXPECT_THAT(outcome.output, HasSubstr("Example"))
        << absl::StrJoin(command, " ");
  }
}

TEST_F(ProgramTest, UnknownArgumentsAreUsageErrors) {
  EXPECT_EQ(Run("rivulet", {}).code, kExitUsage);
  EXPECT_EQ(Run("rivulet", {"trian"}).code, kExitUsage);
  EXPECT_EQ(Run("rivulet-worker", {"--rank", "0"}).code, kExitUsage);
}

TEST_F(ProgramTest, EvalNamesMissingAndDamagedWeights) {
  const Outcome missing = Run("rivulet", {"eval", dir_ / "no.safetensors"});
  EXPECT_EQ(missing.code, kExitData);
  EXPECT_THAT(missing.output, HasSubstr("no.safetensors"));
  const std::string cut = Write("cut.safetensors", "short");
  const Outcome damaged =
      Run("rivulet", {"eval", cut, "--config", WriteConfig(SmallConfig())});
  EXPECT_EQ(damaged.code, kExitData);
  EXPECT_THAT(damaged.output, HasSubstr("cut.safetensors"));
}

}  // namespace
}  // namespace rivulet
