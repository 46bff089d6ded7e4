#include "server/controller/complete_markers.h"

#include <filesystem>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;

TEST(CompleteMarkersTest, KeepsTheNewestSetsAndRemovesEmptyFolders) {
  const TempFolder folder;
  const RunPaths paths(folder.path());
  RV_ASSERT_OK(MarkCheckpointComplete(paths, 100, "j", 2));
  RV_ASSERT_OK(MarkCheckpointComplete(paths, 200, "j", 2));
  // A member's file: the folder must outlive its marker.
  WriteBytes(paths.checkpoints() + "/step-0000000100/worker-0.safetensors",
             "x");
  RV_ASSERT_OK(MarkCheckpointComplete(paths, 1000, "j", 2));
  RV_ASSERT_OK(MarkCheckpointComplete(paths, 2000, "job", 2));
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(paths.checkpoints() + "/" + name);
  };
  EXPECT_EQ(ReadBytes(paths.checkpoints() + "/step-0000002000/COMPLETE"),
            "job job\n");
  EXPECT_TRUE(exists("step-0000001000/COMPLETE"));
  EXPECT_FALSE(exists("step-0000000200"));
  EXPECT_FALSE(exists("step-0000000100/COMPLETE"));
  EXPECT_TRUE(exists("step-0000000100/worker-0.safetensors"));
}

}  // namespace
}  // namespace rivulet
