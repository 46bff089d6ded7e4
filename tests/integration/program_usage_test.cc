// The programs and the mistakes of who starts them: usage, configs, help.

#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/daemon/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/program_test_util.h"
#include "worker/cli/child.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ExpectOneLine;
using ::rivulet::testing::Outcome;
using ::rivulet::testing::ProgramTest;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

struct ConfigMistake {
  std::string text;
  std::string complaint;  // after the file's name
};

TEST_F(ProgramTest, ConfigMistakesAreUsageErrorsThatNameFileLineAndKey) {
  for (const ConfigMistake& mistake : {
           ConfigMistake{"name: x\ntrian:\n  epochs: 3\n",
                         ":2: trian: found an unknown key (did you mean train"},
           ConfigMistake{"name: x\ntrain:\n  epoch: 3\n",
                         ":3: train.epoch: found an unknown key (did you mean "
                         "epochs"},
           ConfigMistake{"data:\n  synthetic:\n    clases: 3\n",
                         ":3: data.synthetic.clases: found an unknown key (did "
                         "you mean classes"},
           ConfigMistake{"train:\n  batch_size: many\n",
                         ":2: train.batch_size: found "},
           ConfigMistake{"train: 7\n", ":1: train: found "},
           ConfigMistake{"", ":1: found no keys"},
       }) {
    const std::string path = Write("bad.yaml", mistake.text);
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"check", path},
          std::vector<std::string>{"train", path, "--run-dir", RunDir()}}) {
      ExpectOneLine(Run("rivulet", arguments), kExitUsage,
                    path + mistake.complaint);
    }
    EXPECT_FALSE(fs::exists(RunDir())) << mistake.text;
  }
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

TEST_F(ProgramTest, ADaemonWithAnotherConfigIsToldWhichKeysDiffer) {
  const std::string path = WriteConfig(LongConfig());
  std::string dial;
  const std::unique_ptr<Child> controller = StartController(path, &dial);
  const std::unique_ptr<Child> other =
      StartDaemon("rivulet-worker", path, "w",
                  {"--rank", "0", "--set", dial, "--set", "train.seed=5",
                   "--set", "compression.density=0.3"});
  ExpectOneLine(End(*other), kExitUsage,
                "worker 0 has another config: compression.density is 0.2 for "
                "the controller, 0.3 for worker 0; train.seed is 1 for the "
                "controller, 5 for worker 0");
  controller->Signal(SIGTERM);
  EXPECT_EQ(End(*controller).code, kExitInterrupted);
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
        std::vector<std::string>{"rivulet", "lab"},
        std::vector<std::string>{"rivulet", "eval"},
        std::vector<std::string>{"rivulet", "check"},
        std::vector<std::string>{"rivulet", "inspect"},
        std::vector<std::string>{"rivulet", "bench", "model"},
        std::vector<std::string>{"rivulet", "bench", "compression"},
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

TEST_F(ProgramTest, NumbersOutOfRangeAndBadPathsAreRefusedBeforeAnyWork) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"eval", dir_, "--threads", "100000"},
           {"eval", dir_, "--threads", "-1"},
           {"bench", "model", "resnet20", "--threads", "1,1025"},
           {"bench", "model", "resnet20", "--threads", "0"},
           {"bench", "model", "resnet20", "--batch", "0"},
           {"bench", "model", "resnet20", "--repetitions", "100000"},
           {"bench", "model", "resnet20", "--json", dir_ / "none" / "x.json"},
           {"bench", "model", "resnet20", "--json", dir_}}) {
    const Outcome outcome = Run("rivulet", arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << absl::StrJoin(arguments, " ");
    EXPECT_THAT(outcome.output, HasSubstr(arguments[arguments.size() - 2]));
    EXPECT_THAT(outcome.output, Not(HasSubstr("images/s")));
  }
}

}  // namespace
}  // namespace rivulet
