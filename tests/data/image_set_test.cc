#include "data/image_set.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ImageSet Example() {
  return {.shape = {.channels = 1, .height = 1, .width = 2},
          .num_classes = 3,
          .mean = {0.5f},
          .stddev = {0.25f},
          .pixels = {1, 2, 3, 4, 5, 6},
          .labels = {2, 0, 2}};
}

TEST(ImageSetTest, ReadsImagesByIndex) {
  const InMemoryDataset set(Example());
  EXPECT_EQ(set.size(), 3);
  std::vector<uint8_t> pixels(2);
  EXPECT_THAT(set.Read(1, absl::MakeSpan(pixels)), IsOkAndHolds(0));
  EXPECT_THAT(pixels, ElementsAre(3, 4));
  EXPECT_THAT(set.Read(2, absl::MakeSpan(pixels)), IsOkAndHolds(2));
  EXPECT_THAT(pixels, ElementsAre(5, 6));
}

TEST(ImageSetTest, RefusesAnIndexBeyondTheEnd) {
  const InMemoryDataset set(Example());
  std::vector<uint8_t> pixels(2);
  for (const int64_t index : {-1, 3}) {
    EXPECT_THAT(set.Read(index, absl::MakeSpan(pixels)).status(),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("of a data set of 3")));
  }
}

TEST(ImageSetTest, NamesAClassThatDoesNotOccur) {
  ImageSet images = Example();
  EXPECT_THAT(CheckEveryClassOccurs(images, "folder"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("folder: none of the 3 images has label 1")));
  images.labels[0] = 1;
  EXPECT_THAT(CheckEveryClassOccurs(images, "folder"), IsOk());
}

TEST(ImageSetDeathTest, DiesOnSizesThatDisagree) {
  ImageSet images = Example();
  images.labels.pop_back();
  EXPECT_DEATH(InMemoryDataset{images}, "6 vs. 4");
}

}  // namespace
}  // namespace rivulet
