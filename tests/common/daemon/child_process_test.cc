#include "common/daemon/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"
#include "common/daemon/exit_codes.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

TEST(ChildProcessDeathTest, EndsWhenTheOtherEndOfThePipeCloses) {
  const auto run = [] {
    int ends[2];
    if (pipe(ends) != 0 || !ExitWhenClosed(ends[0]).ok()) _exit(1);
    close(ends[1]);
    absl::SleepFor(absl::Seconds(20));
    _exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(kExitInterrupted), "");
}

TEST(ChildProcessDeathTest, LivesWhileTheOtherEndIsOpenAndWhateverComes) {
  const auto run = [] {
    int ends[2];
    if (pipe(ends) != 0 || !ExitWhenClosed(ends[0]).ok()) _exit(1);
    if (write(ends[1], "x", 1) != 1) _exit(2);
    absl::SleepFor(absl::Milliseconds(50));
    _exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(0), "");
}

TEST(ChildProcessDeathTest, ASignalRaisesAFlagAndOnlyASecondCtrlCEndsIt) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto once = [signal] {
      HandleStopSignals();
      if (StopSignalled()) _exit(1);
      raise(signal);
      _exit(StopSignalled() ? 0 : 2);
    };
    EXPECT_EXIT(once(), ExitedWithCode(0), "");
    const auto twice = [signal] {
      HandleStopSignals();
      raise(signal);
      raise(signal);
      _exit(0);
    };
    EXPECT_EXIT(twice(),
                ExitedWithCode(signal == SIGINT ? kExitInterrupted : 0), "");
  }
  const auto each = [] {
    HandleStopSignals();
    for (const int signal : {SIGTERM, SIGINT, SIGTERM, SIGHUP}) raise(signal);
    _exit(0);
  };
  EXPECT_EXIT(each(), ExitedWithCode(0), "");
  const auto under_nohup = [] {
    signal(SIGHUP, SIG_IGN);
    HandleStopSignals();
    raise(SIGHUP);
    _exit(StopSignalled() ? 1 : 0);
  };
  EXPECT_EXIT(under_nohup(), ExitedWithCode(0), "");
}

TEST(ChildProcessTest, RefusesADescriptorThatIsNotOpen) {
  EXPECT_THAT(ExitWhenClosed(987), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("--parent-fd 987")));
}

TEST(ChildProcessTest, WritesTheWholeTextAndCloses) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  RV_ASSERT_OK(WriteAndClose(ends[1], "127.0.0.1:70\n"));
  char text[32];
  EXPECT_EQ(read(ends[0], text, sizeof(text)), 13);
  EXPECT_EQ(std::string(text, 13), "127.0.0.1:70\n");
  EXPECT_EQ(read(ends[0], text, sizeof(text)), 0) << "closed";
  close(ends[0]);
  EXPECT_THAT(WriteAndClose(987, "x"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("987")));
}

}  // namespace
}  // namespace rivulet
