#include "common/daemon/run_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunFolderTest, MakesTheFoldersAndNamesTheFiles) {
  const TempFolder folder;
  const std::string dir = folder.File("runs/a");
  RV_ASSERT_OK_AND_ASSIGN(RunFolder run, RunFolder::Create(dir, false));
  RV_ASSERT_OK(run.Populate());
  EXPECT_TRUE(std::filesystem::is_directory(dir + "/checkpoints"));
  EXPECT_TRUE(std::filesystem::is_directory(dir + "/logs"));
  EXPECT_EQ(run.paths().dir(), dir);
  EXPECT_EQ(run.paths().config(), dir + "/config.yaml");
  EXPECT_EQ(run.paths().metrics(), dir + "/metrics.csv");
  EXPECT_EQ(run.paths().summary(), dir + "/summary.json");
  EXPECT_EQ(run.paths().weights(), dir + "/weights.safetensors");
  EXPECT_EQ(run.paths().Log("worker-3"), dir + "/logs/worker-3.log");
}

TEST(RunFolderTest, ASecondHolderIsRefusedByNameUntilTheFirstLetsGo) {
  const TempFolder folder;
  auto first = RunFolder::Create(folder.path(), false);
  RV_ASSERT_OK(first);
  for (const bool resume : {false, true}) {
    EXPECT_THAT(RunFolder::Create(folder.path(), resume),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         AllOf(HasSubstr(folder.path()),
                               HasSubstr(absl::StrCat("process ", getpid())))));
  }
  {
    // Moving keeps the lock.
    std::optional<RunFolder> moved(*std::move(first));
    EXPECT_THAT(RunFolder::Create(folder.path(), false),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("is going on, held by process ")));
  }
  RV_EXPECT_OK(RunFolder::Create(folder.path(), false));
}

TEST(RunFolderTest, AProcessThatDiesLetsGo) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    auto held = RunFolder::Create(folder.path(), false);
    _exit(held.ok() ? 0 : 1);  // without destructors
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  RV_EXPECT_OK(RunFolder::Create(folder.path(), false));
}

TEST(RunFolderTest, AnEarlierRunIsOnlyGoneOnWithWhenAsked) {
  const TempFolder folder;
  WriteFile(folder.File("summary.json"), "{}");
  EXPECT_THAT(RunFolder::Create(folder.path(), false),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("summary.json"), HasSubstr("--resume"),
                             HasSubstr("--run-dir"))));
  RV_EXPECT_OK(RunFolder::Create(folder.path(), true));
}

TEST(RunFolderTest, CheckpointsAreAnEarlierRunAndLogsAreNot) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.File("logs"));
  WriteFile(folder.File("logs/worker-0.log"), "x");
  std::filesystem::create_directories(folder.File("checkpoints"));
  RV_EXPECT_OK(RunFolder::Create(folder.path(), false));
  std::filesystem::create_directories(
      folder.File("checkpoints/step-0000000010"));
  EXPECT_THAT(
      RunFolder::Create(folder.path(), false),
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step-0000000010")));
}

TEST(RunFolderTest, WhatCannotBeWrittenNamesPathAndErrno) {
  const TempFolder folder;
  WriteFile(folder.File("file"), "");
  EXPECT_THAT(
      RunFolder::Create(folder.File("file"), false),
      StatusIs(absl::StatusCode::kPermissionDenied,
               AllOf(HasSubstr(folder.File("file")), HasSubstr("errno"))));
  EXPECT_THAT(RunFolder::Create(folder.File("file/below"), false),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr(folder.File("file/below")),
                             HasSubstr("errno 20"))));
  // A folder in which nothing can be made, for root neither.
  EXPECT_THAT(RunFolder::Create("/proc/self", false),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("/proc/self/lock")));
  std::filesystem::create_directories(folder.File("run"));
  WriteFile(folder.File("run/logs"), "");
  RV_ASSERT_OK_AND_ASSIGN(RunFolder run,
                          RunFolder::Create(folder.File("run"), false));
  EXPECT_THAT(run.Populate(), StatusIs(absl::StatusCode::kPermissionDenied,
                                       HasSubstr(folder.File("run/logs"))));
}

TEST(RunFolderTest, AFolderInWhichNothingBeganGoesAgain) {
  const TempFolder folder;
  const std::string dir = folder.File("runs/a");
  {
    RV_ASSERT_OK_AND_ASSIGN(RunFolder run, RunFolder::Create(dir, false));
    EXPECT_TRUE(std::filesystem::exists(dir + "/lock"));
    const RunFolder moved(std::move(run));
  }
  EXPECT_FALSE(std::filesystem::exists(dir));

  std::filesystem::create_directories(dir);
  RV_ASSERT_OK(RunFolder::Create(dir, false));
  EXPECT_TRUE(std::filesystem::exists(dir)) << "it was there before";
  std::filesystem::remove_all(dir);
  {
    RV_ASSERT_OK_AND_ASSIGN(RunFolder run, RunFolder::Create(dir, false));
    RV_ASSERT_OK(run.Populate());
  }
  EXPECT_TRUE(std::filesystem::exists(dir + "/checkpoints"));
}

}  // namespace
}  // namespace rivulet
