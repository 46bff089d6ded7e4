#include "data/byte_source.h"

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string Example() {
  RandomStream rng(1, RandomPurpose::kTest);
  std::string bytes;
  for (int i = 0; i < 100000; ++i) {
    bytes.push_back(static_cast<char>(rng.UniformInt(40)));
  }
  return bytes;
}

void WriteGzip(const std::string& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  RV_CHECK(file != nullptr);
  RV_CHECK_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
  RV_CHECK_EQ(gzclose(file), Z_OK);
}

absl::Status ReadAll(const std::string& path, std::string* bytes) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = OpenFile(path);
  if (!source.ok()) return source.status();
  const absl::Status status = (*source)->Read(
      absl::MakeSpan(reinterpret_cast<uint8_t*>(bytes->data()), bytes->size()),
      "record 5");
  if (!status.ok()) return status;
  return (*source)->ExpectEnd();
}

TEST(ByteSourceTest, ReadsPlainAndPackedFilesAlike) {
  const TempFolder folder;
  const std::string bytes = Example();
  WriteBytes(folder.File("plain"), bytes);
  WriteGzip(folder.File("packed"), bytes);
  ASSERT_LT(ReadBytes(folder.File("packed")).size(), bytes.size());
  for (const char* name : {"plain", "packed"}) {
    std::string read(bytes.size(), '\0');
    EXPECT_THAT(ReadAll(folder.File(name), &read), IsOk());
    EXPECT_EQ(read, bytes);
  }
}

TEST(ByteSourceTest, ShortFilesSayWhereAndHowMuch) {
  const TempFolder folder;
  WriteBytes(folder.File("f"), "abc");
  std::string read(5, '\0');
  EXPECT_THAT(ReadAll(folder.File("f"), &read),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(folder.File("f")),
                             HasSubstr("cut in record 5: 5 bytes expected at "
                                       "byte 0, 3 found"))));
  read.resize(2);
  EXPECT_THAT(ReadAll(folder.File("f"), &read),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("more bytes after the 2")));
}

TEST(ByteSourceTest, EveryCutOfAPackedFileIsNoticed) {
  const TempFolder folder;
  const std::string bytes = Example();
  WriteGzip(folder.File("f"), bytes);
  const std::string packed = ReadBytes(folder.File("f"));
  for (size_t size = 3; size < packed.size(); size += 997) {
    WriteBytes(folder.File("f"), packed.substr(0, size));
    std::string read(bytes.size(), '\0');
    EXPECT_THAT(ReadAll(folder.File("f"), &read),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(folder.File("f")), HasSubstr("cut"))))
        << size;
  }
}

TEST(ByteSourceTest, ADamagedPackedFileIsNoticed) {
  const TempFolder folder;
  const std::string bytes = Example();
  WriteGzip(folder.File("f"), bytes);
  std::string packed = ReadBytes(folder.File("f"));
  packed[packed.size() / 2] ^= 0x10;
  WriteBytes(folder.File("f"), packed);
  std::string read(bytes.size(), '\0');
  EXPECT_THAT(ReadAll(folder.File("f"), &read),
              StatusIs(absl::StatusCode::kDataLoss,
                       AnyOf(HasSubstr("damaged gzip data"),
                             HasSubstr("cut gzip data"))));
}

TEST(ByteSourceTest, NamesMissingFilesAndFolders) {
  const TempFolder folder;
  EXPECT_THAT(
      OpenFile(folder.File("none")).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder.File("none"))));
  EXPECT_THAT(
      OpenFile(folder.path()).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not a file")));
  EXPECT_THAT(FileSize(folder.File("none")).status(),
              StatusIs(absl::StatusCode::kNotFound));
  WriteBytes(folder.File("f"), "abc");
  EXPECT_THAT(FileSize(folder.File("f")), IsOkAndHolds(3));
}

TEST(ByteSourceTest, MemoryCountsItsPosition) {
  const auto source = OpenMemory("abcdef", "memory");
  uint8_t bytes[4];
  EXPECT_THAT(source->Read(absl::MakeSpan(bytes), "it"), IsOk());
  EXPECT_EQ(bytes[3], 'd');
  EXPECT_EQ(source->position(), 4);
  EXPECT_THAT(source->Read(absl::MakeSpan(bytes), "it"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("memory: cut in it: 4 bytes expected at byte "
                                 "4, 2 found")));
  EXPECT_THAT(source->ExpectEnd(), IsOk());
}

TEST(ByteSourceTest, KnowsWebPages) {
  EXPECT_NE(LooksLikeWebPage("\n <!doctype HTML>"), "");
  EXPECT_NE(LooksLikeWebPage("<HTML><head>"), "");
  EXPECT_EQ(LooksLikeWebPage("html"), "");
  EXPECT_EQ(LooksLikeWebPage(""), "");
}

}  // namespace
}  // namespace rivulet
