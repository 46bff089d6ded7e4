#include "common/daemon/logging.h"

#include <spdlog/spdlog.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadFile;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LoggingTest : public ::testing::Test {
 protected:
  // The sink's file must not outlive the folder.
  ~LoggingTest() override { RV_EXPECT_OK(InitLogging({.process = "test"})); }

  LoggingOptions Options(const std::string& level) const {
    return {.process = "worker-0",
            .level = level,
            .file = folder_.File("logs/worker-0.log"),
            .stderr_too = false};
  }
  std::string Text() const {
    return ReadFile(folder_.File("logs/worker-0.log"));
  }

  const TempFolder folder_;
};

TEST_F(LoggingTest, ALineHasTimeLevelProcessAndMessage) {
  RV_ASSERT_OK(InitLogging(Options("info")));
  spdlog::info("joined {} as {}", "10.0.0.1:7070", 3);
  // Flushed at once: a process that is killed leaves its last words.
  EXPECT_THAT(Text(),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{"
                           "2}\\.[0-9]{3}Z info  worker-0 joined "
                           "10\\.0\\.0\\.1:7070 as 3\n"));
}

TEST_F(LoggingTest, LinesSayWhoAndHowFarOnceThatIsKnown) {
  RV_ASSERT_OK(InitLogging(Options("info")));
  SetLogIdentity("01f3a9c2ffffffffffffffffffffffff", 4294967297);
  spdlog::info("joined");
  SetLogStep(120);
  spdlog::info("saved");
  EXPECT_THAT(Text(),
              MatchesRegex("[^\n]* worker-0 01f3a9c2/4294967297 joined\n"
                           "[^\n]* worker-0 01f3a9c2/4294967297 step 120 "
                           "saved\n"));
  SetLogIdentity("", 0);
  SetLogStep(-1);
}

TEST_F(LoggingTest, LevelsBelowTheConfiguredAreLeftOut) {
  RV_ASSERT_OK(InitLogging(Options("warning")));
  spdlog::info("no");
  spdlog::warn("yes");
  spdlog::error("yes too");
  EXPECT_THAT(Text(), MatchesRegex("[^\n]*Z warning worker-0 yes\n"
                                   "[^\n]*Z error worker-0 yes too\n"));
}

TEST_F(LoggingTest, AMessageStaysOnOneLine) {
  RV_ASSERT_OK(InitLogging(Options("info")));
  spdlog::info("a\nb\x1b[0mc %d");
  EXPECT_THAT(Text(), HasSubstr("worker-0 a\\nb [0mc %d\n"));
}

TEST_F(LoggingTest, AProcessNameIsNotAPattern) {
  LoggingOptions options = Options("info");
  options.process = "100%v";
  RV_ASSERT_OK(InitLogging(options));
  spdlog::info("x");
  EXPECT_THAT(Text(), HasSubstr(" 100%v x\n"));
}

TEST_F(LoggingTest, AFileThatCannotBeOpenedIsAnError) {
  LoggingOptions options = Options("info");
  options.file = "/proc/version/x.log";
  EXPECT_THAT(InitLogging(options),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("/proc/version/x.log")));
}

TEST_F(LoggingTest, AnUnknownLevelIsAnError) {
  EXPECT_THAT(InitLogging(Options("loud")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loud")));
}

}  // namespace
}  // namespace rivulet
