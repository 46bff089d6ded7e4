// The programs where something is missing, taken, damaged or dies: exit codes,
// one clear line, nothing left behind.

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/daemon/config.h"
#include "common/daemon/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/program_test_util.h"
#include "tests/testing/cluster.h"
#include "worker/cli/child.h"

namespace rivulet {
namespace {

using ::rivulet::testing::BusyPort;
using ::rivulet::testing::ExpectOneLine;
using ::rivulet::testing::Outcome;
using ::rivulet::testing::ProgramTest;
using ::rivulet::testing::SmallConfig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

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
  SignalWorker(1, SIGKILL);
  ExpectOneLine(End(*train), kExitUnavailable,
                "worker-1: was killed by signal 9");
  ExpectNothingLeft();
}

TEST_F(ProgramTest, AHungWorkerIsNamedAndHoldsNobodyUp) {
  Config config = LongConfig();
  // Long enough that the others are never late, however busy the machine.
  config.cluster.lease = absl::Seconds(5);
  const std::unique_ptr<Child> train =
      Start("rivulet", {"train", WriteConfig(config), "--run-dir", RunDir()});
  WaitForMetrics();
  SignalWorker(1, SIGSTOP);
  const Outcome outcome = End(*train);
  ExpectOneLine(outcome, kExitUnavailable,
                "has been silent for more than 5s (cluster.lease)");
  EXPECT_THAT(outcome.output, HasSubstr("error: worker 1 ("));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, SaysWhoIsMissingAndGivesUpAtTheDeadline) {
  Config config = LongConfig();
  config.cluster.join_timeout = absl::Seconds(5);
  config.cluster.workers = 4;
  config.cluster.shards = 1;
  const std::string path = WriteConfig(config);
  std::string dial;
  const std::unique_ptr<Child> controller = StartController(path, &dial);
  std::vector<std::unique_ptr<Child>> members;
  members.push_back(StartDaemon("rivulet-server", path, "s",
                                {"--shard", "0", "--set", dial}));
  for (const char* rank : {"0", "1", "3"}) {
    members.push_back(StartDaemon("rivulet-worker", path,
                                  absl::StrCat("w", rank),
                                  {"--rank", rank, "--set", dial}));
  }
  ExpectOneLine(End(*controller), kExitUnavailable, "worker 2");
  EXPECT_THAT(absl::StrJoin(controller->Tail(), "\n"),
              HasSubstr("rivulet-worker --config FILE --rank 2"));
  for (const std::unique_ptr<Child>& member : members) {
    EXPECT_EQ(End(*member).code, kExitUnavailable) << member->name();
  }
  EXPECT_FALSE(fs::exists(RunDir() + "/summary.json"));
  EXPECT_THAT(Processes(), IsEmpty());
}

TEST_F(ProgramTest, ABusyPortIsNamedBeforeAnythingIsWritten) {
  const BusyPort busy;
  Config config = LongConfig();
  config.cluster.controller = busy.address();
  ExpectOneLine(Run("rivulet-controller",
                    {"--config", WriteConfig(config), "--run-dir", RunDir()}),
                kExitUnavailable,
                absl::StrCat("cannot listen on ", busy.address(),
                             " (cluster.controller): the port is in use"));
  EXPECT_FALSE(fs::exists(RunDir()));

  config.local.listen = busy.address();
  ExpectOneLine(Run("rivulet-server", {"--config", WriteConfig(config),
                                       "--shard", "0", "--run-dir", RunDir()}),
                kExitUnavailable,
                absl::StrCat("cannot listen on ", busy.address(),
                             " (local.listen): the port is in use"));
}

TEST_F(ProgramTest, ARunFolderThatCannotBeMadeIsNamed) {
  const std::string under_a_file = Write("file", "text") + "/run";
  const std::string path = WriteConfig(LongConfig());
  const std::vector<std::string> files = Files();
  ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", under_a_file}),
                kExitRunFolder, under_a_file);
  if (geteuid() != 0) {  // root may read and write everything
    fs::create_directories(RunDir());
    fs::permissions(RunDir(), fs::perms::none);
    ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", RunDir()}),
                  kExitRunFolder, RunDir());
    fs::permissions(RunDir(), fs::perms::owner_all);
    EXPECT_TRUE(fs::is_empty(RunDir()));
    fs::remove(RunDir());
  }
  EXPECT_EQ(Files(), files);
  ExpectNothingLeft();
}

TEST_F(ProgramTest, AFolderInTheSummarysPlaceIsOneClearLine) {
  fs::create_directories(RunDir() + "/summary.json");
  ExpectOneLine(Run("rivulet", {"train", WriteConfig(SmallConfig()),
                                "--run-dir", RunDir()}),
                kExitRunFolder, "summary.json");
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ASecondRunInTheSameFolderIsRefusedAndTheFirstGoesOn) {
  const std::string path = WriteConfig(LongConfig());
  const std::unique_ptr<Child> first =
      Start("rivulet", {"train", path, "--run-dir", RunDir()});
  WaitForMetrics();
  for (const char* resume : {"", "--resume"}) {
    std::vector<std::string> arguments = {"train", path, "--run-dir", RunDir()};
    if (*resume != 0) arguments.push_back(resume);
    ExpectOneLine(Run("rivulet", arguments), kExitRunFolder,
                  "a run in this folder is going on, held by process ");
  }
  WaitForMetrics(MetricsLines());
  first->Signal(SIGINT);
  EXPECT_EQ(End(*first).code, kExitInterrupted);
  EXPECT_EQ(Summary().value("status", ""), "stopped");
}

TEST_F(ProgramTest, MissingDataFolderIsOneClearLine) {
  Config config = SmallConfig();
  config.data.name = "cifar10";
  config.data.path = dir_ / "nothing-here";
  ExpectOneLine(
      Run("rivulet", {"train", WriteConfig(config), "--run-dir", RunDir()}),
      kExitData, "nothing-here");
  EXPECT_FALSE(fs::exists(RunDir()));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ADataFileThatIsCutIsNamed) {
  Config config = SmallConfig();
  config.data.name = "cifar10";
  config.data.path = dir_;
  const std::string cut =
      Write("data_batch_1.bin", std::string(3073 + 100, '\1'));
  const std::string path = WriteConfig(config);
  ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", RunDir()}),
                kExitData, absl::StrCat(cut, ": 3173 bytes found"));
  EXPECT_FALSE(fs::exists(RunDir()));
  ExpectOneLine(Run("rivulet-worker",
                    {"--config", path, "--rank", "0", "--run-dir", RunDir()}),
                kExitData, "cut in record 1");
  ExpectNothingLeft();
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
