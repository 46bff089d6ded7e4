#include "data/idx.h"

#include <zlib.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/file_builders.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::BigEndian32;
using ::rivulet::testing::IdxImages;
using ::rivulet::testing::IdxLabels;
using ::rivulet::testing::Pixels;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kImages = 20;

// As small as the tests' files.
constexpr IdxSet kSmall = {.name = "small",
                           .folder = "Small",
                           .mean = 0.25f,
                           .stddev = 0.5f,
                           .train_images = kImages,
                           .test_images = 10};

void WriteGzip(const std::string& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  RV_CHECK(file != nullptr);
  RV_CHECK_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
  RV_CHECK_EQ(gzclose(file), Z_OK);
}

void ExpectTraining(const std::string& path) {
  RV_ASSERT_OK_AND_ASSIGN(const auto set, OpenIdx(kSmall, path, Split::kTrain));
  ASSERT_EQ(set->size(), kImages);
  EXPECT_EQ(set->shape().channels, 1);
  EXPECT_EQ(set->shape().height, 28);
  EXPECT_EQ(set->mean()[0], 0.25f);
  EXPECT_EQ(set->stddev()[0], 0.5f);
  std::string pixels(784, '\0');
  for (int64_t i = 0; i < set->size(); ++i) {
    RV_ASSERT_OK_AND_ASSIGN(
        const int32_t label,
        set->Read(i, absl::MakeSpan(reinterpret_cast<uint8_t*>(pixels.data()),
                                    pixels.size())));
    EXPECT_EQ(label, i % 10);
    EXPECT_EQ(pixels, Pixels(i, 784));
  }
}

TEST(IdxTest, ReadsPlainAndPackedFiles) {
  const TempFolder folder;
  WriteBytes(folder.File("train-images-idx3-ubyte"), IdxImages(kImages));
  WriteGzip(folder.File("train-labels-idx1-ubyte.gz"), IdxLabels(kImages));
  ExpectTraining(folder.path());
}

TEST(IdxTest, ReadsTorchvisionsFolder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.File("Small/raw"));
  WriteGzip(folder.File("Small/raw/train-images-idx3-ubyte.gz"),
            IdxImages(kImages));
  WriteBytes(folder.File("Small/raw/train-labels-idx1-ubyte"),
             IdxLabels(kImages));
  ExpectTraining(folder.path());
}

TEST(IdxTest, TheTestSplitHasItsOwnFilesAndSize) {
  const TempFolder folder;
  WriteBytes(folder.File("t10k-images-idx3-ubyte"), IdxImages(10));
  WriteBytes(folder.File("t10k-labels-idx1-ubyte"), IdxLabels(10));
  RV_ASSERT_OK_AND_ASSIGN(const auto set,
                          OpenIdx(kSmall, folder.path(), Split::kTest));
  EXPECT_EQ(set->size(), 10);
}

TEST(IdxTest, NamesWhatIsMissing) {
  const TempFolder folder;
  EXPECT_THAT(OpenIdx(kSmall, folder.File("none"), Split::kTrain),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("no folder " + folder.File("none"))));
  EXPECT_THAT(
      OpenIdx(kSmall, folder.path(), Split::kTrain),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("train-images-idx3-ubyte.gz"),
                     HasSubstr(folder.path()), HasSubstr("Small/raw"))));
}

// One damaged file each beside a good one.
TEST(IdxTest, NamesDamagedFilesWithRecordAndReason) {
  const std::string images = IdxImages(kImages);
  const std::string labels = IdxLabels(kImages);
  std::string label_10 = labels;
  label_10[8 + 13] = 10;
  std::string few_classes = labels;
  for (size_t i = 8; i < few_classes.size(); ++i) {
    if (few_classes[i] == 4) few_classes[i] = 5;
  }
  const struct {
    std::string images;
    std::string labels;
    std::string reason;
  } kCases[] = {
      {"", labels, "cut in the header: 4 bytes expected at byte 0, 0 found"},
      {images.substr(0, 1), labels, "cut in the header"},
      {images.substr(0, 15), labels, "cut in the header"},
      {images.substr(0, 16 + 3 * 784 + 100), labels,
       "cut in record 3: 784 bytes expected at byte 2368, 100 found"},
      {images + "x", labels, "more bytes after the 15696"},
      {"<!DOCTYPE html>", labels, "looks like a web page"},
      {"<svg>", labels,
       "begins with 0x3c737667, an idx file of images begins with 0x00000803"},
      {labels, labels,
       "begins with 0x00000801, an idx file of images begins with 0x00000803"},
      {IdxImages(kImages - 1), labels,
       "dimension 0 of the images is 19, expected is 20"},
      {IdxImages(kImages, 32), labels,
       "dimension 1 of the images is 32, expected is 28"},
      {images, "", "cut in the header"},
      {images, labels.substr(0, labels.size() - 1), "cut in record 19"},
      {images, label_10, "record 13 has label 10, expected is 0..9"},
      {images, few_classes, "none of the 20 images has label 4"},
  };
  for (const auto& c : kCases) {
    const TempFolder folder;
    const std::string image_file = folder.File("train-images-idx3-ubyte");
    const std::string label_file = folder.File("train-labels-idx1-ubyte");
    WriteBytes(image_file, c.images);
    WriteBytes(label_file, c.labels);
    EXPECT_THAT(
        OpenIdx(kSmall, folder.path(), Split::kTrain),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(c.images == images ? label_file : image_file),
                       HasSubstr(c.reason))));
  }
}

TEST(IdxTest, HugeDimensionsAllocateNothing) {
  ImageSet images;
  const std::string bytes =
      absl::StrCat(BigEndian32(0x803), BigEndian32(0xFFFFFFFF), BigEndian32(28),
                   BigEndian32(28));
  EXPECT_THAT(ReadIdxImages(*OpenMemory(bytes, "m"), kImages, &images),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("4294967295")));
}

}  // namespace
}  // namespace rivulet
