#include "data/cifar.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/file_builders.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::CifarBinary;
using ::rivulet::testing::CifarPickle;
using ::rivulet::testing::CifarPickleContents;
using ::rivulet::testing::PickleContents;
using ::rivulet::testing::Pixels;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRecords = 12;  // in each file of these tests
constexpr int64_t kRecordBytes = 3073;

// Training file i holds records 5 * i, 5 * i + 1...
void WriteBinaryFolder(const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (int i = 1; i <= 5; ++i) {
    WriteBytes(absl::StrCat(folder, "/data_batch_", i, ".bin"),
               CifarBinary(kRecords, 5 * i));
  }
  WriteBytes(folder + "/test_batch.bin", CifarBinary(kRecords, 100));
}

void WritePythonFolder(const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (int i = 1; i <= 5; ++i) {
    WriteBytes(absl::StrCat(folder, "/data_batch_", i),
               CifarPickle(CifarPickleContents(kRecords, 5 * i)));
  }
  WriteBytes(folder + "/test_batch",
             CifarPickle(CifarPickleContents(kRecords, 100)));
}

void ExpectExampleImages(const Dataset& train, const Dataset& test) {
  ASSERT_EQ(train.size(), 5 * kRecords);
  ASSERT_EQ(test.size(), kRecords);
  EXPECT_EQ(train.num_classes(), 10);
  std::string pixels(3072, '\0');
  const auto span =
      absl::MakeSpan(reinterpret_cast<uint8_t*>(pixels.data()), pixels.size());
  for (int64_t i = 0; i < train.size(); ++i) {
    const int64_t record = 5 * (1 + i / kRecords) + i % kRecords;
    RV_ASSERT_OK_AND_ASSIGN(const int32_t label, train.Read(i, span));
    EXPECT_EQ(label, record % 10);
    EXPECT_EQ(pixels, Pixels(record, 3072)) << i;
  }
  RV_ASSERT_OK_AND_ASSIGN(const int32_t label, test.Read(7, span));
  EXPECT_EQ(label, 7);
  EXPECT_EQ(pixels, Pixels(107, 3072));
}

void ExpectOpens(const std::string& path) {
  RV_ASSERT_OK_AND_ASSIGN(const auto train,
                          OpenCifar10(path, Split::kTrain, kRecords));
  RV_ASSERT_OK_AND_ASSIGN(const auto test,
                          OpenCifar10(path, Split::kTest, kRecords));
  ExpectExampleImages(*train, *test);
}

TEST(CifarTest, ReadsTheBinaryLayoutInItsFolderAndBelow) {
  const TempFolder folder;
  WriteBinaryFolder(folder.File("cifar-10-batches-bin"));
  ExpectOpens(folder.path());
  ExpectOpens(folder.File("cifar-10-batches-bin"));
}

TEST(CifarTest, ReadsThePythonLayoutInItsFolderAndBelow) {
  const TempFolder folder;
  WritePythonFolder(folder.File("cifar-10-batches-py"));
  ExpectOpens(folder.path());
  ExpectOpens(folder.File("cifar-10-batches-py"));
}

TEST(CifarTest, ColumnMajorPicklesGiveTheSameImages) {
  PickleContents contents = CifarPickleContents(kRecords);
  PickleContents turned = contents;
  turned.column_major = true;
  for (int r = 0; r < kRecords; ++r) {
    for (int c = 0; c < 3072; ++c) {
      turned.data[c * kRecords + r] = contents.data[r * 3072 + c];
    }
  }
  ImageSet plain = EmptyCifarSet();
  ImageSet other = EmptyCifarSet();
  RV_ASSERT_OK(AppendCifarPickle(CifarPickle(contents), "p", kRecords, &plain));
  RV_ASSERT_OK(AppendCifarPickle(CifarPickle(turned), "p", kRecords, &other));
  EXPECT_EQ(plain.pixels, other.pixels);
  EXPECT_EQ(plain.labels, other.labels);
}

TEST(CifarTest, NamesWhatIsMissing) {
  const TempFolder folder;
  EXPECT_THAT(OpenCifar10(folder.File("none"), Split::kTrain, kRecords),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("no folder " + folder.File("none"))));
  EXPECT_THAT(OpenCifar10(folder.path(), Split::kTrain, kRecords),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no CIFAR-10 in " + folder.path()),
                             HasSubstr("data_batch_1.bin and data_batch_1"),
                             HasSubstr("cifar-10-batches-py"))));
  WriteBinaryFolder(folder.path());
  std::filesystem::remove(folder.File("data_batch_4.bin"));
  EXPECT_THAT(OpenCifar10(folder.path(), Split::kTrain, kRecords),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr(folder.File("data_batch_4.bin"))));
}

// One damaged file among good ones; the message names it and the reason.
TEST(CifarTest, NamesDamagedFilesWithRecordAndReason) {
  const std::string good = CifarBinary(kRecords, 10);
  std::string label_10 = good;
  label_10[7 * kRecordBytes] = 10;
  const int64_t size = kRecords * kRecordBytes;
  const struct {
    std::string bytes;
    std::string reason;
  } kCases[] = {
      {"", absl::StrCat(": 0 bytes found, ", size, " expected")},
      {good.substr(0, 1), ": 1 bytes found"},
      {good.substr(0, good.size() - 1), ": cut in record 11"},
      {good.substr(0, 4 * kRecordBytes + 1000), ": cut in record 4"},
      {good + "x", absl::StrCat(size + 1, " bytes found, ", size, " expected")},
      {label_10, ": record 7 has label 10, expected is 0..9"},
      {"<!DOCTYPE html><html>404</html>", "looks like a web page"},
  };
  for (const auto& c : kCases) {
    const TempFolder folder;
    WriteBinaryFolder(folder.path());
    WriteBytes(folder.File("data_batch_2.bin"), c.bytes);
    EXPECT_THAT(OpenCifar10(folder.path(), Split::kTrain, kRecords),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(folder.File("data_batch_2.bin")),
                               HasSubstr(c.reason))));
  }
}

TEST(CifarTest, PublishedFilesHaveTheirPublishedSize) {
  const TempFolder folder;
  // A file with a hole: a byte short of 10,000 records.
  WriteBytes(folder.File("test_batch.bin"), "");
  std::filesystem::resize_file(folder.File("test_batch.bin"), 30729999);
  EXPECT_THAT(OpenCifar10(folder.path(), Split::kTest),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("30729999 bytes found, 30730000 expected "
                                 "(10000 records of 3073 bytes): cut in "
                                 "record 9999")));
}

TEST(CifarTest, NoticesAMissingClass) {
  const TempFolder folder;
  std::string bytes;
  for (int r = 0; r < kRecords; ++r) {
    bytes += static_cast<char>(r % 9) + Pixels(r, 3072);
  }
  WriteBytes(folder.File("test_batch.bin"), bytes);
  EXPECT_THAT(OpenCifar10(folder.path(), Split::kTest, kRecords),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("none of the 12 images has label 9")));
}

TEST(CifarTest, NamesDamagedPickles) {
  PickleContents few_labels = CifarPickleContents(kRecords);
  few_labels.labels.pop_back();
  PickleContents label_10 = CifarPickleContents(kRecords);
  label_10.labels[3] = 10;
  PickleContents few_images = CifarPickleContents(kRecords - 1);
  const std::string good = CifarPickle(CifarPickleContents(kRecords));
  const struct {
    std::string bytes;
    std::string reason;
  } kCases[] = {
      {"", "cut, 1 bytes expected, 0 found"},
      {good.substr(0, 1), "cut"},
      {good.substr(0, 20000), "cut"},
      {"<html>", "looks like a web page"},
      {CifarPickle(few_labels), "11 labels found, 12 expected"},
      {CifarPickle(label_10), "record 3 has label 10"},
      {CifarPickle(few_images), "shape [11, 3072], expected is [12, 3072]"},
  };
  for (const auto& c : kCases) {
    ImageSet images = EmptyCifarSet();
    EXPECT_THAT(AppendCifarPickle(c.bytes, "some/file", kRecords, &images),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("some/file: "), HasSubstr(c.reason))));
  }
}

}  // namespace
}  // namespace rivulet
