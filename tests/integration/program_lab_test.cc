// `rivulet lab` as a person runs it.

#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
using ::rivulet::testing::SmallConfig;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

class LabProgramTest : public ProgramTest {
 protected:
  // Two arms of `config`, in this test's folder.
  std::string WriteGrid(const Config& config) {
    WriteConfig(config);
    return Write("grid.yaml",
                 absl::StrCat("base: config.yaml\nout: ", dir_.string(),
                              "/out\ncsv: ", dir_.string(),
                              "/out.csv\nseeds: [1]\narms:\n  a:\n"
                              "  b: {optimizer.learning_rate: 0.01}\n"));
  }
};

TEST_F(LabProgramTest, OneRunIsThatOfTrain) {
  const std::string path = WriteConfig(SmallConfig());
  const Outcome lab =
      Run("rivulet", {"lab", path, "--run-dir", RunDir(), "--cores", "1"});
  ASSERT_EQ(lab.code, kExitOk) << lab.output;
  EXPECT_THAT(lab.output, AllOf(HasSubstr("test accuracy"),
                                HasSubstr("times less"), HasSubstr(RunDir())));
  for (const char* name :
       {"config.yaml", "metrics.csv", "summary.json", "weights.safetensors",
        "checkpoints", "logs/lab.log"}) {
    EXPECT_TRUE(fs::exists(RunDir() + "/" + name)) << name;
  }
  const nlohmann::json summary = Summary();
  fs::remove_all(RunDir());
  ASSERT_EQ(Run("rivulet", {"train", path, "--run-dir", RunDir()}).code,
            kExitOk);
  EXPECT_EQ(summary["weights_sha256"], Summary()["weights_sha256"]);
}

TEST_F(LabProgramTest, InterruptCheckpointsAndTheCommandThatItNamesGoesOn) {
  const std::string path = WriteConfig(LongConfig());
  const std::unique_ptr<Child> lab =
      Start("rivulet", {"lab", path, "--run-dir", RunDir()});
  WaitForMetrics();
  lab->Signal(SIGINT);
  const Outcome stopped = End(*lab);
  EXPECT_EQ(stopped.code, kExitInterrupted) << stopped.output;
  EXPECT_EQ(Summary().value("status", ""), "stopped");
  const int64_t steps = Summary().value("steps", int64_t{0});
  EXPECT_GT(steps, 0);
  EXPECT_THAT(
      stopped.output,
      AllOf(HasSubstr("stopping after a checkpoint"),
            HasSubstr(absl::StrCat("\nrivulet: stopped at step ", steps)),
            HasSubstr(absl::StrCat(RIVULET_PROGRAM_DIR, "/rivulet lab ", path,
                                   " --run-dir ", RunDir(), " --resume\n")),
            Not(HasSubstr("error"))));
  ExpectOneLine(Run("rivulet", {"lab", path, "--run-dir", RunDir()}),
                kExitRunFolder, "--resume");
  // The daemons take it up, too.
  const std::unique_ptr<Child> resumed =
      Start("rivulet", {"train", path, "--run-dir", RunDir(), "--resume"});
  WaitForLine(*resumed, absl::StrCat("resuming from step ", steps, " of "));
  resumed->Signal(SIGINT);
  EXPECT_EQ(End(*resumed).code, kExitInterrupted);
}

TEST_F(LabProgramTest, AnExperimentListsRunsAndSkipsWhatIsDone) {
  const std::string path = WriteGrid(SmallConfig());
  const Outcome before = Run("rivulet", {"lab", path, "--list"});
  EXPECT_EQ(before.code, kExitOk) << before.output;
  EXPECT_THAT(before.output, AllOf(HasSubstr("to do      a seed 1"),
                                   HasSubstr("to do      b seed 1")));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  const Outcome ran = Run("rivulet", {"lab", path, "--data", "/unused"});
  ASSERT_EQ(ran.code, kExitOk) << ran.output;
  EXPECT_THAT(ran.output, AllOf(HasSubstr("[1/2] a seed 1  done: test "),
                                HasSubstr("[2/2] b seed 1  done: test ")));
  const Outcome after = Run("rivulet", {"lab", path, "--list"});
  EXPECT_THAT(after.output, AllOf(HasSubstr("done       a seed 1"),
                                  HasSubstr("done       b seed 1")));
  EXPECT_THAT(Run("rivulet", {"lab", path}).output,
              AllOf(HasSubstr("[1/2] a seed 1  done already"),
                    HasSubstr("[2/2] b seed 1  done already")));
}

TEST_F(LabProgramTest, AnInterruptedExperimentIsResumable) {
  const std::string path = WriteGrid(LongConfig());
  const std::unique_ptr<Child> lab = Start("rivulet", {"lab", path});
  WaitForLine(*lab, "[1/2] a seed 1  epoch ");
  ExpectOneLine(Run("rivulet", {"lab", path}), kExitRunFolder,
                "a run in this folder is going on, held by process ");
  lab->Signal(SIGINT);
  const Outcome stopped = End(*lab);
  EXPECT_EQ(stopped.code, kExitInterrupted) << stopped.output;
  EXPECT_THAT(stopped.output, AllOf(HasSubstr("the same command goes on"),
                                    Not(HasSubstr("b seed 1"))));
  EXPECT_THAT(Run("rivulet", {"lab", path, "--list"}).output,
              AllOf(HasSubstr("resumable  a seed 1"),
                    HasSubstr("to do      b seed 1")));
  const std::unique_ptr<Child> again = Start("rivulet", {"lab", path});
  WaitForLine(*again, "[1/2] a seed 1  resuming from step ");
  again->Signal(SIGINT);
  EXPECT_EQ(End(*again).code, kExitInterrupted);
}

TEST_F(LabProgramTest, AFailedRunGivesTheCommandItsExitCode) {
  const std::string path = WriteGrid(SmallConfig());
  // In the way of the run's folder.
  fs::create_directories(dir_ / "out");
  Write("out/a-seed1", "no folder");
  const Outcome outcome = Run("rivulet", {"lab", path});
  EXPECT_EQ(outcome.code, kExitRunFolder) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("1 of 2 runs failed"),
                                    HasSubstr("[2/2] b seed 1  done: test")));
}

TEST_F(LabProgramTest, MistakesAreUsageErrors) {
  ExpectOneLine(Run("rivulet", {"lab", "/nonexistent.yaml"}), kExitUsage,
                "/nonexistent.yaml");
  const std::string config = WriteConfig(SmallConfig());
  ExpectOneLine(Run("rivulet", {"lab", config, "--list"}), kExitUsage,
                "is the config of one run");
  const std::string path = WriteGrid(SmallConfig());
  ExpectOneLine(Run("rivulet", {"lab", path, "--resume"}), kExitUsage,
                "--resume");
  ExpectOneLine(Run("rivulet", {"lab", path, "--set", "train.seed=3"}),
                kExitUsage, "given by seeds");
  EXPECT_EQ(Run("rivulet", {"lab", path, "--cores", "0"}).code, kExitUsage);
  ExpectOneLine(Run("rivulet", {"lab", Write("bad.yaml", "arms: {a: }\n")}),
                kExitUsage, "bad.yaml:1: base: found no such key");
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(LabProgramTest, EveryShippedExperimentIsValid) {
  int experiments = 0;
  for (const auto& entry :
       fs::directory_iterator(RIVULET_SOURCE_DIR "/configs/lab")) {
    const Outcome outcome = Run("rivulet", {"lab", entry.path(), "--list"});
    EXPECT_EQ(outcome.code, kExitOk) << outcome.output;
    ++experiments;
  }
  EXPECT_GE(experiments, 1);
}

}  // namespace
}  // namespace rivulet
