#include "models/checkpoint/tensor_file.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Bytes of the format made by hand, without the code under test.
std::string FileOf(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * i)));
  }
  return bytes + header + data;
}

std::string FloatBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

TensorFile Example() {
  TensorFile file;
  file.tensors = {{"fc.weight", {2, 3}, {1, 2, 3, 4, 5, -6.5f}},
                  {"scalar", {}, {0.25f}},
                  {"empty.z", {0, 4}, {}},
                  {"empty.a", {0}, {}},
                  {"bias", {3}, {-0.0f, 1e-40f, 3e38f}}};
  file.metadata = {{"format", "pt"}, {"step", "17"}, {"text", "a\n\"\xc3\xa4"}};
  return file;
}

void ExpectEqual(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].shape, b.tensors[i].shape);
    // Bits, so that -0, NaN and denormal numbers count.
    EXPECT_EQ(FloatBytes(a.tensors[i].values), FloatBytes(b.tensors[i].values));
  }
}

std::string Written(const TensorFile& file) {
  const TempFolder folder;
  EXPECT_THAT(WriteTensorFile(folder.File("t"), file), IsOk());
  return ReadBytes(folder.File("t"));
}

auto IsDamaged(const std::string& reason) {
  return StatusIs(absl::StatusCode::kDataLoss,
                  AllOf(HasSubstr("t.safetensors: "), HasSubstr(reason)));
}

absl::StatusOr<TensorFile> Parse(const std::string& bytes) {
  return ParseTensorFile(bytes, "t.safetensors");
}

TEST(TensorFileTest, RoundTripsThroughAFile) {
  const TempFolder folder;
  TensorFile file = Example();
  file.tensors.push_back({"nan", {1}, {std::nanf("7")}});
  EXPECT_THAT(WriteTensorFile(folder.File("t"), file), IsOk());
  RV_ASSERT_OK_AND_ASSIGN(const TensorFile back,
                          ReadTensorFile(folder.File("t")));
  ExpectEqual(back, file);
  EXPECT_EQ(back.Find("bias"), &back.tensors[4]);
  EXPECT_EQ(back.Find("none"), nullptr);
}

TEST(TensorFileTest, RoundTripsNothing) {
  RV_ASSERT_OK_AND_ASSIGN(const TensorFile back, Parse(Written({})));
  EXPECT_TRUE(back.tensors.empty());
  EXPECT_TRUE(back.metadata.empty());
}

TEST(TensorFileTest, RoundTripsRandomFiles) {
  constexpr uint64_t kSeed = 5;
  for (uint64_t round = 0; round < 30; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", kSeed, " round ", round));
    RandomStream rng(kSeed, RandomPurpose::kTest, round);
    TensorFile file;
    const uint32_t count = rng.UniformInt(20);
    for (uint32_t t = 0; t < count; ++t) {
      NamedTensor tensor;
      tensor.name = absl::StrCat("t", rng.Next32(), ".", t);
      size_t elements = 1;
      for (uint32_t d = rng.UniformInt(4); d > 0; --d) {
        tensor.shape.push_back(rng.UniformInt(5));
        elements *= static_cast<size_t>(tensor.shape.back());
      }
      for (size_t i = 0; i < elements; ++i) {
        tensor.values.push_back(rng.UniformFloat() - 0.5f);
      }
      file.tensors.push_back(std::move(tensor));
    }
    RV_ASSERT_OK_AND_ASSIGN(const TensorFile back, Parse(Written(file)));
    ExpectEqual(back, file);
  }
}

// The format's description, checked on the bytes.
TEST(TensorFileTest, BytesFollowTheSpecification) {
  const std::string bytes = Written(Example());
  ASSERT_GT(bytes.size(), 8u);
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) {
    length |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  ASSERT_LE(length, bytes.size() - 8);
  EXPECT_EQ(length % 8, 0u);
  std::string header = bytes.substr(8, length);
  EXPECT_EQ(header[0], '{');
  const size_t last = header.find_last_not_of(' ');
  EXPECT_EQ(header[last], '}');
  EXPECT_LT(header.size() - last, 9u) << "more padding than needed";

  const auto json = nlohmann::json::parse(header);
  EXPECT_EQ(json.size(), 6u);
  EXPECT_EQ(json["__metadata__"]["step"], "17");
  EXPECT_EQ(json["__metadata__"]["crc32c"].get<std::string>().size(),
            6u * 8 + 5);
  const auto& weight = json["fc.weight"];
  EXPECT_EQ(weight["dtype"], "F32");
  EXPECT_EQ(weight["shape"], (std::vector<int>{2, 3}));
  EXPECT_EQ(weight["data_offsets"], (std::vector<int>{0, 24}));
  EXPECT_EQ(json["scalar"]["shape"], nlohmann::json::array());
  EXPECT_EQ(json["scalar"]["data_offsets"], (std::vector<int>{24, 28}));
  EXPECT_EQ(json["bias"]["data_offsets"], (std::vector<int>{28, 40}));
  EXPECT_EQ(bytes.size(), 8 + length + 40);
  EXPECT_EQ(bytes.substr(8 + length, 24), FloatBytes({1, 2, 3, 4, 5, -6.5f}));
  EXPECT_EQ(bytes.substr(8 + length, 4), absl::string_view("\0\0\x80\x3f", 4));
}

TEST(TensorFileTest, BytesDependOnTheContentsAlone) {
  EXPECT_EQ(Written(Example()), Written(Example()));
}

TEST(TensorFileTest, ReadsFilesOfOtherPrograms) {
  // As the safetensors library writes them: sorted by name, no checksums, data
  // in another order than the header's.
  RV_ASSERT_OK_AND_ASSIGN(
      const TensorFile file,
      Parse(FileOf(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                   R"("c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )",
                   FloatBytes({7, 8, 9}))));
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].name, "c");
  EXPECT_EQ(file.tensors[0].values, std::vector<float>({7}));
  EXPECT_EQ(file.tensors[1].values, (std::vector<float>{8, 9}));
}

TEST(TensorFileTest, EveryCutOfTheHeaderIsNoticed) {
  const std::string bytes = Written(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(Parse(bytes.substr(0, size)), IsDamaged("cut")) << size;
  }
}

TEST(TensorFileTest, ACutAtEach4KiBIsNoticedAndSaysTheSizes) {
  const TempFolder folder;
  TensorFile file;
  file.tensors = {{"a", {100, 100}, std::vector<float>(10000, 1.5f)},
                  {"b", {500}, std::vector<float>(500, 2.5f)}};
  const std::string bytes = Written(file);
  for (size_t size = 4096; size < bytes.size(); size += 4096) {
    const std::string path = folder.File("t.safetensors");
    WriteBytes(path, bytes.substr(0, size));
    EXPECT_THAT(
        ReadTensorFile(path),
        StatusIs(
            absl::StatusCode::kDataLoss,
            AllOf(HasSubstr(path), HasSubstr("cut"),
                  HasSubstr("42000 bytes of data expected"),
                  HasSubstr(absl::StrCat("file size ", bytes.size(),
                                         " expected, ", size, " found")))));
  }
}

TEST(TensorFileTest, TrailingBytesAreNoticed) {
  EXPECT_THAT(Parse(Written(Example()) + "x"),
              IsDamaged("trailing bytes: 40 bytes of data expected, 41 found"));
  EXPECT_THAT(Parse(Written({}) + "abcd"), IsDamaged("trailing bytes"));
}

TEST(TensorFileTest, EveryFlippedBitIsNoticed) {
  const std::string bytes = Written(Example());
  const absl::StatusOr<TensorFile> original = Parse(bytes);
  ASSERT_TRUE(original.ok());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const absl::StatusOr<TensorFile> read = Parse(damaged);
      // White space may become other white space. In the key "crc32c" a flip
      // makes it a foreign one: without checksums, but with one key more.
      if (!read.ok()) continue;
      if (read->metadata.size() != original->metadata.size()) continue;
      ExpectEqual(*read, *original);
    }
  }
}

TEST(TensorFileTest, ADamagedValueNamesItsTensor) {
  std::string bytes = Written(Example());
  bytes[bytes.size() - 2] ^= 4;
  EXPECT_THAT(Parse(bytes), IsDamaged("tensor \"bias\" has checksum"));
}

TEST(TensorFileTest, DamagedMetadataAreNoticed) {
  std::string bytes = Written(Example());
  const size_t at = bytes.find("\"17\"");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = '2';
  EXPECT_THAT(Parse(bytes), IsDamaged("the header's checksum is"));
}

TEST(TensorFileTest, HugeHeaderLengthsAllocateNothing) {
  std::string bytes = Written(Example());
  for (const int highest : {3, 5, 7}) {
    std::string damaged = bytes;
    damaged[highest] = '\x7f';
    EXPECT_THAT(Parse(damaged), IsDamaged("cut, or not a safetensors file"));
  }
  EXPECT_THAT(Parse("<!DOCTYPE html><html>"),
              IsDamaged("not a safetensors file"));
}

// One bad header each, on 12 bytes of data.
TEST(TensorFileTest, WrongHeadersAreRefusedWithTheReason) {
  const auto tensor = [](absl::string_view dtype, absl::string_view shape,
                         absl::string_view offsets) {
    return absl::StrCat(R"({"x":{"dtype":)", dtype, R"(,"shape":)", shape,
                        R"(,"data_offsets":)", offsets, "}}");
  };
  const struct {
    std::string header;
    std::string reason;
  } kCases[] = {
      {"", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"{", "not a JSON object"},
      {"{}x", "not a JSON object"},
      {"{\"\xff\":1}", "not a JSON object"},
      {"{}", "trailing bytes: 0 bytes of data expected, 12 found"},
      {tensor(R"("F16")", "[3]", "[0,12]"), "dtype \"F16\", supported is"},
      {tensor("3", "[3]", "[0,12]"), "dtype 3"},
      {tensor(R"("F32")", "[-3]", "[0,12]"), "shape [-3]"},
      {tensor(R"("F32")", "[3.0]", "[0,12]"), "shape [3.0]"},
      {tensor(R"("F32")", "3", "[0,12]"), "shape 3"},
      {tensor(R"("F32")", "[2]", "[0,12]"), "do not fit its shape [2]"},
      {tensor(R"("F32")", "[3]", "[0,13]"), "do not fit its shape [3]"},
      {tensor(R"("F32")", "[4294967296,4294967296]", "[0,12]"),
       "do not fit its shape"},
      {tensor(R"("F32")", "[18446744073709551615]", "[0,12]"), "shape ["},
      {tensor(R"("F32")", "[3]", "[12,0]"), "two rising numbers"},
      {tensor(R"("F32")", "[3]", "[0]"), "two rising numbers"},
      {tensor(R"("F32")", "[3]", "[-1,11]"), "two rising numbers"},
      {tensor(R"("F32")", "[3]", "[4,16]"), "a hole"},
      {tensor(R"("F32")", "[300]", "[0,1200]"),
       "cut: 1200 bytes of data expected, 12 found"},
      {tensor(R"("F32")", "[2]", "[0,8]"), "trailing bytes"},
      {R"({"x":{"dtype":"F32","shape":[3]}})", "has not just dtype"},
      {R"({"x":7})", "has not just dtype"},
      {R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
       R"("y":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       "tensor \"y\" begins at byte 8 of the data, 12 expected: overlapping"},
      {R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
       R"("x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
       "the key \"x\" twice"},
      {R"({"x":{"dtype":"F32","dtype":"F32","shape":[3],)"
       R"("data_offsets":[0,12]}})",
       "the key \"dtype\" twice"},
      {R"({"__metadata__":3})", "__metadata__ is not a JSON object"},
      {R"({"__metadata__":{"a":1}})", "__metadata__ \"a\" is not a text"},
      {R"({"__metadata__":{"crc32c":"12"},)"
       R"("x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
       "1 checksums found, 2 expected"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Parse(FileOf(c.header, std::string(12, '\0'))),
                IsDamaged(c.reason))
        << c.header;
  }
}

TEST(TensorFileTest, DeepJsonIsRefusedWithoutOverflowingTheStack) {
  constexpr size_t kDepth = 100000;
  EXPECT_THAT(Parse(FileOf("{\"x\":" + std::string(kDepth, '['), "")),
              IsDamaged("not a JSON object"));
  EXPECT_THAT(
      Parse(FileOf(absl::StrCat(R"({"x":{"dtype":)", std::string(kDepth, '['),
                                std::string(kDepth, ']'),
                                R"(,"shape":[],"data_offsets":[0,4]}})"),
                   "abcd")),
      IsDamaged("nested too deeply"));
}

TEST(TensorFileTest, WritingRefusesWhatCannotBeRead) {
  const TempFolder folder;
  const std::string path = folder.File("t");
  WriteBytes(path, "old");
  const auto refused = [&](const TensorFile& file, const std::string& reason) {
    EXPECT_THAT(WriteTensorFile(path, file),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path), HasSubstr(reason))));
    EXPECT_EQ(ReadBytes(path), "old");
  };
  refused({.tensors = {{"a", {2}, {1}}}, .metadata = {}},
          "tensor \"a\" has shape [2] and 1 values");
  refused({.tensors = {{"a", {-1}, {}}}, .metadata = {}}, "shape [-1]");
  refused({.tensors = {{"a", {1}, {1}}, {"a", {1}, {2}}}, .metadata = {}},
          "not unique");
  refused({.tensors = {{"__metadata__", {1}, {1}}}, .metadata = {}},
          "reserved");
  refused({.tensors = {}, .metadata = {{"crc32c", "x"}}}, "reserved");
  refused({.tensors = {{"\xff", {1}, {1}}}, .metadata = {}}, "UTF-8");
}

TEST(TensorFileTest, NamesAMissingFileAndAFolder) {
  const TempFolder folder;
  EXPECT_THAT(
      ReadTensorFile(folder.File("none")),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder.File("none"))));
  EXPECT_THAT(
      ReadTensorFile(folder.path()),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not a file")));
}

}  // namespace
}  // namespace rivulet
