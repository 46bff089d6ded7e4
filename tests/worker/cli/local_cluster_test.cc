// LocalCluster with shell scripts in the place of the daemons, so that each of
// them ends exactly when and how a test wants.

#include "worker/cli/local_cluster.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/daemon/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Says that it listens, and waits to be told to stop.
constexpr char kReady[] = "echo 127.0.0.1:1 >&4\n";
constexpr char kStoppable[] =
    "trap 'echo \"$self: told to stop\"; exit 130' TERM\n"
    "while :; do sleep 0.02; done\n";
// Hangs: no signal but SIGKILL ends it. The reads end with the parent.
constexpr char kDeaf[] = "trap '' TERM\nwhile :; do sleep 0.02; done\n";

class LocalClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.program_dir = folder_.path();
    options_.config_path = "unused";
    options_.run_dir = folder_.File("run");
    options_.workers = 2;
    options_.shards = 1;
    // No script needs longer; where one is deaf, the test need not wait.
    options_.controller_grace = absl::Seconds(30);
    options_.leave_grace = absl::Seconds(30);
    Script("rivulet-controller", absl::StrCat(kReady, kStoppable));
    Script("rivulet-server", kStoppable);
    Script("rivulet-worker", kStoppable);
  }

  // `script` finds its name in $self and worker 1's in $role.
  void Script(const std::string& program, const std::string& script) {
    const std::string path = folder_.File(program);
    WriteBytes(path,
               absl::StrCat("#!/bin/sh\nself=", program,
                            "\ncase \"$*\" in *'--rank 1'*) role=worker1;;"
                            " esac\n",
                            script));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  // Runs to the end; asks for a stop once the file `when` is there.
  absl::Status Run(const std::string& when = "") {
    RV_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> cluster,
                        LocalCluster::Start(options_));
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (!cluster->Poll()) {
      if (absl::Now() > deadline) return absl::InternalError("still running");
      if (!when.empty() && std::filesystem::exists(folder_.File(when))) {
        cluster->RequestStop();
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return cluster->Result();
  }

  const TempFolder folder_;
  LocalClusterOptions options_;
};

TEST_F(LocalClusterTest, IsWellWhenAllEndWell) {
  Script("rivulet-controller", absl::StrCat(kReady, "exit 0\n"));
  Script("rivulet-server", "exit 0\n");
  Script("rivulet-worker", "exit 0\n");
  RV_EXPECT_OK(Run());
}

TEST_F(LocalClusterTest, AChildThatHangsAfterAGoodEndIsKilledAndForgotten) {
  Script("rivulet-controller", absl::StrCat(kReady, "exit 0\n"));
  Script("rivulet-server", "exit 0\n");
  Script("rivulet-worker", absl::StrCat("[ -z $role ] && exit 0\n", kDeaf));
  options_.leave_grace = absl::Milliseconds(100);
  RV_EXPECT_OK(Run());
}

TEST_F(LocalClusterTest, AStopIsTheControllersWordAndNoError) {
  const std::string ready = folder_.File("ready");
  Script("rivulet-controller",
         absl::StrCat(kReady,
                      "trap 'echo \"$self: stopped at step 4\"; exit "
                      "130' TERM\ntouch ",
                      ready, "\nwhile :; do sleep 0.02; done\n"));
  EXPECT_THAT(Run("ready"),
              StatusIs(absl::StatusCode::kCancelled, "stopped at step 4"));
}

// Children that the controller never knew look for it until they are told.
TEST_F(LocalClusterTest, AStopBeforeAllHaveJoinedReachesTheOthersToo) {
  Script("rivulet-worker",
         absl::StrCat("trap 'touch ", folder_.path(),
                      "/told$role; exit 130' TERM\ntouch ", folder_.path(),
                      "/up$role\nwhile :; do sleep 0.02; done\n"));
  EXPECT_THAT(Run("upworker1"), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(std::filesystem::exists(folder_.File("toldworker1")));
}

TEST_F(LocalClusterTest, AChildThatFailsBeforeItHasJoinedEndsTheRunAndIsNamed) {
  Script("rivulet-worker", absl::StrCat("[ -z $role ] || { echo '",
                                        "rivulet-worker: error: no "
                                        "data in /d'; exit 3; }\n",
                                        kStoppable));
  std::filesystem::create_directories(RunPaths(options_.run_dir).logs());
  const std::string log = RunPaths(options_.run_dir).Log("worker-1");
  WriteBytes(log, "");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kNotFound,
                              absl::StrCat(
                                  "worker-1: no data in /d (log: ", log, ")")));
}

TEST_F(LocalClusterTest, ALogThatIsNotThereIsNotNamed) {
  Script("rivulet-worker", "echo 'rivulet-worker: error: no'; exit 1\n");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInternal,
                              AllOf(HasSubstr(": no"), Not(HasSubstr("log")))));
}

TEST_F(LocalClusterTest, AHungChildIsKilledAndTheControllersVerdictCounts) {
  Script("rivulet-controller",
         absl::StrCat(kReady,
                      "echo \"$self: error: worker 1 has been silent\"\n"
                      "exit 4\n"));
  Script("rivulet-worker", absl::StrCat("[ -z $role ] && exit 1\n", kDeaf));
  options_.leave_grace = absl::Milliseconds(100);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kUnavailable,
                              "worker 1 has been silent"));
}

TEST_F(LocalClusterTest, AHungControllerIsKilledAndTheFirstFailureCounts) {
  Script("rivulet-controller", absl::StrCat("trap '' TERM\n", kReady, kDeaf));
  Script("rivulet-worker", absl::StrCat("[ -z $role ] || { echo '",
                                        "rivulet-worker: error: lost "
                                        "it'; exit 4; }\n",
                                        kDeaf));
  options_.controller_grace = absl::Milliseconds(100);
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kUnavailable, "worker-1: lost it"));
}

TEST_F(LocalClusterTest, AChildThatSomethingKilledIsNamedFirst) {
  Script("rivulet-controller",
         absl::StrCat(kReady, "while [ ! -e ", folder_.File("dead"),
                      " ]; do sleep 0.02; done\n",
                      "echo \"$self: error: worker 1 went away\"\nexit 4\n"));
  Script("rivulet-worker",
         absl::StrCat("[ -z $role ] || { touch ", folder_.File("dead"),
                      "; kill -9 $$; }\n", kStoppable));
  EXPECT_THAT(
      Run(),
      StatusIs(absl::StatusCode::kUnavailable,
               "worker-1: was killed by signal 9 (by the system, if nobody "
               "else did it: out of memory)"));
}

TEST_F(LocalClusterTest, AControllerThatRefusesSpeaksForTheRun) {
  Script("rivulet-controller",
         "echo \"$self: error: /run is in use\" >&2\nexit 5\n");
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kAlreadyExists, "/run is in use"));
}

TEST_F(LocalClusterTest, AnInterruptEndsTheWaitForTheController) {
  Script("rivulet-controller", kDeaf);
  options_.cancelled = [] { return true; };
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace rivulet
