#include "worker/cli/child.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Shell(const std::string& script) {
  return {"/bin/sh", "-c", script};
}

class ChildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RV_ASSERT_OK_AND_ASSIGN(Pipe life, Pipe::Create());
    life_.emplace(std::move(life));
  }
  std::optional<Pipe> life_;
};

TEST_F(ChildTest, TellsTheExitCode) {
  RV_ASSERT_OK_AND_ASSIGN(auto child,
                          Child::Spawn("a", Shell("exit 7"), *life_, nullptr));
  ASSERT_TRUE(child->WaitFor(absl::Seconds(10)));
  EXPECT_EQ(child->Poll()->code, 7);
  EXPECT_EQ(child->Poll()->signal, 0);
}

TEST_F(ChildTest, TellsTheSignal) {
  RV_ASSERT_OK_AND_ASSIGN(
      auto child, Child::Spawn("a", Shell("kill -9 $$"), *life_, nullptr));
  ASSERT_TRUE(child->WaitFor(absl::Seconds(10)));
  EXPECT_EQ(child->Poll()->signal, SIGKILL);
  EXPECT_EQ(child->Poll()->code, 128 + SIGKILL);
}

TEST_F(ChildTest, MissingProgramIsAnErrorThatNamesIt) {
  EXPECT_THAT(
      Child::Spawn("a", {"/nowhere/program"}, *life_, nullptr).status(),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("/nowhere/program")));
}

TEST_F(ChildTest, KeepsTheLastLinesAndTheLastWord) {
  RV_ASSERT_OK_AND_ASSIGN(
      auto child,
      Child::Spawn("a",
                   Shell("echo one; echo 'rivulet-worker: error: no data' >&2; "
                         "printf three"),
                   *life_, nullptr));
  ASSERT_TRUE(child->WaitFor(absl::Seconds(10)));
  EXPECT_THAT(child->Tail(),
              ElementsAre("one", "rivulet-worker: error: no data", "three"));
  EXPECT_EQ(child->LastWord(), "no data");
}

TEST_F(ChildTest, TheLastWordOfAStopIsNoError) {
  RV_ASSERT_OK_AND_ASSIGN(
      auto child, Child::Spawn("a",
                               Shell("echo 'rivulet-worker: stopped: so'; echo "
                                     "'rivulet is great: really'; exit 130"),
                               *life_, nullptr));
  ASSERT_TRUE(child->WaitFor(absl::Seconds(10)));
  EXPECT_EQ(child->LastWord(), "stopped: so");
}

TEST_F(ChildTest, GetsTheReadyPipeAtItsNumber) {
  RV_ASSERT_OK_AND_ASSIGN(Pipe ready, Pipe::Create());
  RV_ASSERT_OK_AND_ASSIGN(
      auto child, Child::Spawn("a", Shell("echo here >&4"), *life_, &ready));
  ready.CloseWrite();
  char buffer[16] = {};
  EXPECT_EQ(read(ready.read_end(), buffer, sizeof(buffer)), 5);
  EXPECT_STREQ(buffer, "here\n");
}

// The life pipe is what ends children whose parent was killed: no child may
// hold its write end, or it would keep itself and its siblings alive.
TEST_F(ChildTest, LifePipeClosesInEveryChildWhenTheParentsEndDoes) {
  const std::string wait_for_eof = "cat <&3 >/dev/null; exit 5";
  RV_ASSERT_OK_AND_ASSIGN(
      auto first, Child::Spawn("a", Shell(wait_for_eof), *life_, nullptr));
  RV_ASSERT_OK_AND_ASSIGN(
      auto second, Child::Spawn("b", Shell(wait_for_eof), *life_, nullptr));
  EXPECT_FALSE(first->WaitFor(absl::Milliseconds(50)));
  life_->CloseWrite();
  EXPECT_TRUE(first->WaitFor(absl::Seconds(10)));
  EXPECT_TRUE(second->WaitFor(absl::Seconds(10)));
  EXPECT_EQ(first->Poll()->code, 5);
}

TEST_F(ChildTest, DestructorKillsAndReaps) {
  pid_t pid = 0;
  {
    RV_ASSERT_OK_AND_ASSIGN(
        auto child,
        Child::Spawn("a", Shell("exec sleep 1000"), *life_, nullptr));
    pid = child->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ChildTest, LeadsItsOwnProcessGroup) {
  RV_ASSERT_OK_AND_ASSIGN(
      auto child, Child::Spawn("a", Shell("exec sleep 1000"), *life_, nullptr));
  EXPECT_EQ(getpgid(child->pid()), child->pid());
}

// Its output is in the hands of a process that nobody kills: the end of the
// child does not wait for it.
TEST_F(ChildTest, DestructorDoesNotWaitForAProcessThatHoldsTheOutput) {
  const TempFolder folder;
  const std::string pid_file = folder.File("pid");
  for (const char* holder :
       {"sleep 1000", "(trap '' PIPE; while :; do echo y; done)"}) {
    SCOPED_TRACE(holder);
    {
      RV_ASSERT_OK_AND_ASSIGN(
          auto child,
          Child::Spawn("a",
                       Shell(absl::StrCat(holder, " & echo $! > ", pid_file)),
                       *life_, nullptr));
      ASSERT_TRUE(child->WaitFor(absl::Seconds(10)));
    }
    pid_t pid = 0;
    ASSERT_TRUE(absl::SimpleAtoi(
        absl::StripAsciiWhitespace(ReadBytes(pid_file)), &pid));
    EXPECT_EQ(kill(pid, SIGKILL), 0) << "else this test shows nothing";
  }
}

}  // namespace
}  // namespace rivulet
