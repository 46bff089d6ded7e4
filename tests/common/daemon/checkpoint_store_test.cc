#include "common/daemon/checkpoint_store.h"

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/daemon/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::ReadFile;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TensorFile FileWith(float value) {
  TensorFile file;
  file.tensors = {{"u", {2, 3}, {value, 1, 2, 3, 4, 5}}};
  file.metadata["seed"] = "7";
  return file;
}

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() {
    RV_CHECK(InitLogging({.process = "test",
                          .file = folder_.File("log"),
                          .stderr_too = false})
                 .ok());
  }
  // The log must not outlive its folder.
  ~CheckpointStoreTest() override {
    RV_EXPECT_OK(InitLogging({.process = "test"}));
  }

  bool Exists(const std::string& path) const {
    return std::filesystem::exists(path);
  }

  const TempFolder folder_;
  CheckpointStore store_{folder_.File("checkpoints"), "worker-1"};
  CheckpointStore other_{folder_.File("checkpoints"), "worker-10"};
};

absl::StatusOr<std::vector<int64_t>> StepsOf(const CheckpointStore& store) {
  RV_ASSIGN_OR_RETURN(const CheckpointStore::Listing list, store.List());
  std::vector<int64_t> steps;
  for (const CheckpointStore::Found& found : list.whole) {
    EXPECT_EQ(found.metadata.at("seed"), "7");
    steps.push_back(found.step);
  }
  return steps;
}

TEST_F(CheckpointStoreTest, LoadsWhatWasSaved) {
  RV_ASSERT_OK(store_.Save(12, FileWith(0.5f)));
  EXPECT_TRUE(
      Exists(folder_.File("checkpoints/step-0000000012/worker-1.safetensors")));
  RV_ASSERT_OK_AND_ASSIGN(const TensorFile file, store_.Load(12));
  ASSERT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(file.tensors[0].values, FileWith(0.5f).tensors[0].values);
  EXPECT_EQ(file.metadata.at("seed"), "7");
  RV_ASSERT_OK(store_.Save(12, FileWith(0.75f)));
  EXPECT_EQ(store_.Load(12)->tensors[0].values[0], 0.75f);
}

TEST_F(CheckpointStoreTest, ListsOwnStepsNewestFirst) {
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(IsEmpty()));
  for (const int64_t step : {5, 100, 20}) {
    RV_ASSERT_OK(store_.Save(step, FileWith(1)));
  }
  RV_ASSERT_OK(other_.Save(300, FileWith(1)));
  // Not ours, whatever they are.
  std::filesystem::create_directories(folder_.File("checkpoints/step-7"));
  std::filesystem::create_directories(
      folder_.File("checkpoints/step-000000000x"));
  WriteFile(folder_.File("checkpoints/README"), "");
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(100, 20, 5)));
  EXPECT_THAT(StepsOf(other_), IsOkAndHolds(ElementsAre(300)));
}

TEST_F(CheckpointStoreTest, FallsBackWhereverTheNewestIsCut) {
  RV_ASSERT_OK(store_.Save(1, FileWith(1)));
  RV_ASSERT_OK(store_.Save(2, FileWith(2)));
  const std::string whole = ReadFile(store_.PathOf(2));
  ASSERT_GT(whole.size(), 100u);
  for (size_t size = 0; size < whole.size(); size += 16) {
    SCOPED_TRACE(size);
    WriteFile(store_.PathOf(2), whole.substr(0, size));
    EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(1)));
    EXPECT_THAT(store_.Load(2), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr(store_.PathOf(2))));
  }
  RV_ASSERT_OK_AND_ASSIGN(const CheckpointStore::Listing listing,
                          store_.List());
  EXPECT_THAT(listing.damaged,
              ElementsAre(StartsWith("the checkpoint of step 2 is left out: " +
                                     store_.PathOf(2))));
  std::string flipped = whole;
  flipped[whole.size() - 3] ^= 1;
  WriteFile(store_.PathOf(2), flipped);
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(1)));
  WriteFile(store_.PathOf(2), whole);
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(2, 1)));
}

TEST_F(CheckpointStoreTest, AFileInTheWrongPlaceIsNotTaken) {
  RV_ASSERT_OK(store_.Save(1, FileWith(1)));
  RV_ASSERT_OK(other_.Save(1, FileWith(1)));
  std::filesystem::create_directories(
      folder_.File("checkpoints/step-0000000002"));
  std::filesystem::copy_file(store_.PathOf(1), store_.PathOf(2));
  EXPECT_THAT(store_.Load(2),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("found the checkpoint of worker-1"),
                             HasSubstr("expected worker-1, step 2"))));
  std::filesystem::copy_file(other_.PathOf(1), store_.PathOf(1),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(IsEmpty()));
}

TEST_F(CheckpointStoreTest, AMissingStepIsNotFound) {
  EXPECT_THAT(store_.Load(3), StatusIs(absl::StatusCode::kNotFound,
                                       HasSubstr("step-0000000003")));
}

TEST_F(CheckpointStoreTest, PruneRemovesOwnOldStepsOnly) {
  for (const int64_t step : {1, 2, 3, 4, 5}) {
    RV_ASSERT_OK(store_.Save(step, FileWith(1)));
  }
  RV_ASSERT_OK(other_.Save(1, FileWith(1)));
  WriteFile(store_.PathOf(1) + ".tmp.99.1", "left by a killed process");
  RV_ASSERT_OK(store_.Prune({2, 4}));
  // 5 is newer than the newest that is kept: it may be under way.
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(5, 4, 2)));
  EXPECT_THAT(StepsOf(other_), IsOkAndHolds(ElementsAre(1)));
  EXPECT_FALSE(Exists(store_.PathOf(1) + ".tmp.99.1"));
  EXPECT_FALSE(Exists(folder_.File("checkpoints/step-0000000003")));
  EXPECT_TRUE(Exists(folder_.File("checkpoints/step-0000000001")));
  RV_ASSERT_OK(store_.Prune({}));
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(5, 4, 2)));
}

TEST_F(CheckpointStoreTest, WhatIsSetAsideIsSeenNoMoreAndGoesInItsTime) {
  for (const int64_t step : {1, 2, 3}) {
    RV_ASSERT_OK(store_.Save(step, FileWith(1)));
    RV_ASSERT_OK(other_.Save(step, FileWith(1)));
  }
  RV_ASSERT_OK(store_.SetAsideAfter(1));
  EXPECT_THAT(StepsOf(store_), IsOkAndHolds(ElementsAre(1)));
  EXPECT_THAT(StepsOf(other_), IsOkAndHolds(ElementsAre(3, 2, 1)));
  EXPECT_THAT(store_.Load(2), StatusIs(absl::StatusCode::kNotFound,
                                       HasSubstr("step-0000000002")));
  EXPECT_TRUE(Exists(store_.PathOf(2) + ".aside")) << "not lost either";
  RV_ASSERT_OK(store_.Save(4, FileWith(1)));
  RV_ASSERT_OK(store_.Prune({4}));
  EXPECT_FALSE(Exists(store_.PathOf(2) + ".aside"));
}

TEST_F(CheckpointStoreTest, AFolderThatCannotBeWrittenIsNamed) {
  WriteFile(folder_.File("file"), "");
  CheckpointStore store(folder_.File("file/checkpoints"), "shard-0");
  EXPECT_THAT(store.Save(1, FileWith(1)),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr(folder_.File("file/checkpoints"))));
}

}  // namespace
}  // namespace rivulet
