#include "worker/frame_recorder.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/worker_test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::RecordingStream;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;

// A shard that answers every step alike.
class AnsweringStream : public RecordingStream {
 public:
  using RecordingStream::RecordingStream;
  absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t step) override {
    return ReceivedUpdate{.step = step, .bytes = "the answer", .end = {}};
  }
};

FrameRecorder::Options Every(int64_t steps, const std::string& dir) {
  return {.dir = dir, .rank = 2, .every = steps};
}

TEST(FrameRecorderTest, KeepsWhatPassesInEverySoManiethStep) {
  const TempFolder folder;
  AnsweringStream stream(1);
  FrameRecorder recorder(&stream, Every(10, folder.File("frames")));
  for (int64_t step = 9; step <= 11; ++step) {
    recorder.SendPush(step, "one ");
    recorder.SendPush(step, "two ");
    recorder.SendCommit(step, "three", v1::Commit());
    RV_ASSERT_OK(recorder.WaitForUpdate(step).status());
  }
  const std::string kept = folder.File("frames/step-0000000010/");
  EXPECT_EQ(ReadBytes(kept + "worker-2-shard-1-push.frames"), "one two three");
  EXPECT_EQ(ReadBytes(kept + "worker-2-shard-1-update.frames"), "the answer");
  EXPECT_FALSE(std::filesystem::exists(folder.File("frames/step-0000000009")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("frames/step-0000000011")));
  // All of it went on its way.
  ASSERT_EQ(stream.pushes.size(), 3u);
  for (const auto& push : stream.pushes) {
    EXPECT_EQ(push.bytes(), "one two three");
  }
}

TEST(FrameRecorderTest, AVoidedStepIsNotKeptNorLeftOver) {
  const TempFolder folder;
  AnsweringStream stream(0);
  FrameRecorder recorder(&stream, Every(1, folder.path()));
  recorder.SendPush(0, "void ");
  v1::Commit voided;
  voided.set_voided(true);
  recorder.SendCommit(0, "", voided);
  EXPECT_FALSE(std::filesystem::exists(folder.File("step-0000000000")));
  recorder.SendCommit(1, "good", v1::Commit());
  EXPECT_EQ(
      ReadBytes(folder.File("step-0000000001/worker-2-shard-0-push.frames")),
      "good");
}

TEST(FrameRecorderTest, AFolderThatCannotBeMadeStopsNothing) {
  const TempFolder folder;
  WriteBytes(folder.File("frames"), "a file");
  AnsweringStream stream(0);
  FrameRecorder recorder(&stream, Every(1, folder.File("frames")));
  recorder.SendCommit(0, "a push", v1::Commit());
  RV_ASSERT_OK(recorder.WaitForUpdate(0).status());
  EXPECT_EQ(stream.pushes.size(), 1u);
  EXPECT_EQ(ReadBytes(folder.File("frames")), "a file");
}

}  // namespace
}  // namespace rivulet
