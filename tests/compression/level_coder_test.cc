#include "compression/level_coder.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "compression/bit_io.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int kBooks[] = {1, 2, 4, 8};
constexpr LevelMode kModes[] = {LevelMode::kPacked, LevelMode::kAdaptive};

// Index i has a probability in proportion to ratio^i.
template <typename Int>
std::vector<Int> RandomLevels(RandomStream& rng, size_t count, int book,
                              double ratio) {
  std::vector<Int> levels(count);
  for (Int& level : levels) {
    int index = 0;
    do {
      index = static_cast<int>(rng.UniformInt(static_cast<uint32_t>(book)));
    } while (rng.UniformDouble() >= std::pow(ratio, index));
    level = static_cast<Int>(rng.UniformInt(2) == 0 ? 1 + index : -1 - index);
  }
  return levels;
}

template <typename Int>
void ExpectRoundTrip(const std::vector<Int>& levels, int book) {
  for (const LevelMode mode : kModes) {
    std::string bytes;
    AppendLevels(levels, book, mode, &bytes);
    for (const char* tail : {"", "some more bytes\xFF\xFF"}) {
      std::vector<Int> decoded(levels.size());
      size_t consumed = 0;
      RV_ASSERT_OK(DecodeLevels(bytes + tail, book, mode,
                                absl::MakeSpan(decoded), &consumed));
      EXPECT_EQ(consumed, bytes.size());
      EXPECT_EQ(decoded, levels);
    }
  }
}

TEST(LevelCoderTest, LevelsRoundTripInBothModes) {
  for (const int book : kBooks) {
    for (size_t count = 0; count < 70; ++count) {
      SCOPED_TRACE(absl::StrCat("seed ", count, ", book ", book));
      RandomStream rng(count, RandomPurpose::kTest,
                       static_cast<uint64_t>(book));
      ExpectRoundTrip(RandomLevels<int8_t>(rng, count, book, 1), book);
      ExpectRoundTrip(RandomLevels<int16_t>(rng, count, book, 0.5), book);
      ExpectRoundTrip(RandomLevels<int8_t>(rng, 20 * count, book, 0.1), book);
    }
  }
}

TEST(LevelCoderTest, PackedBitsAreTheOnesOfTheHeader) {
  for (const int book : kBooks) {
    RandomStream rng(3, RandomPurpose::kTest);
    const auto levels = RandomLevels<int8_t>(rng, 101, book, 1);
    std::string expected;
    BitWriter writer(&expected);
    for (const int8_t level : levels) {
      writer.Write(level < 0 ? 1 : 0, 1);
      for (int size = book, index = std::abs(level) - 1; size > 1;
           size /= 2, index /= 2) {
        writer.Write(static_cast<uint32_t>(index % 2), 1);
      }
    }
    writer.Finish();
    std::string bytes;
    AppendLevels(levels, book, LevelMode::kPacked, &bytes);
    EXPECT_EQ(bytes, expected);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()),
              PackedLevelBytes(levels.size(), book));
  }
}

TEST(LevelCoderTest, TheShorterModeIsTaken) {
  for (const int book : kBooks) {
    for (const double ratio : {1.0, 0.9, 0.5, 0.05}) {
      for (const size_t count : {0, 1, 10, 100, 3000}) {
        SCOPED_TRACE(absl::StrCat("seed 1, book ", book, ", ratio ", ratio,
                                  ", count ", count));
        RandomStream rng(1, RandomPurpose::kTest);
        const auto levels = RandomLevels<int8_t>(rng, count, book, ratio);
        std::string packed, adaptive, shorter;
        AppendLevels(levels, book, LevelMode::kPacked, &packed);
        AppendLevels(levels, book, LevelMode::kAdaptive, &adaptive);
        const LevelMode mode = AppendLevels(levels, book, &shorter);
        const bool pays = adaptive.size() < packed.size();
        EXPECT_EQ(mode, pays ? LevelMode::kAdaptive : LevelMode::kPacked);
        EXPECT_EQ(shorter, pays ? adaptive : packed);
        const LevelSize size = LevelCodeSize(levels, book);
        EXPECT_EQ(size.mode, mode);
        EXPECT_EQ(size.num_bytes, static_cast<int64_t>(shorter.size()));
      }
    }
  }
}

TEST(LevelCoderTest, AdaptiveCodeIsWithinOnePercentOfTheEntropy) {
  for (const int book : {2, 4, 8}) {
    for (const double ratio : {0.7, 0.3, 0.05}) {
      SCOPED_TRACE(absl::StrCat("seed 2, book ", book, ", ratio ", ratio));
      RandomStream rng(2, RandomPurpose::kTest);
      const auto levels = RandomLevels<int8_t>(rng, 20000, book, ratio);
      std::vector<double> counts(static_cast<size_t>(book));
      for (const int8_t level : levels) {
        ++counts[static_cast<size_t>(std::abs(level) - 1)];
      }
      const double n = static_cast<double>(levels.size());
      double bits = n;
      for (const double c : counts) {
        if (c > 0) bits -= c * std::log2(c / n);
      }
      std::string bytes;
      AppendLevels(levels, book, LevelMode::kAdaptive, &bytes);
      EXPECT_LE(static_cast<double>(bytes.size()), 1.01 * bits / 8 + 8);
    }
  }
}

TEST(LevelCoderTest, CutsAndPaddingAreRefused) {
  RandomStream rng(4, RandomPurpose::kTest);
  for (const int book : kBooks) {
    for (const LevelMode mode : kModes) {
      const auto levels = RandomLevels<int8_t>(rng, 203, book, 0.6);
      std::string bytes;
      AppendLevels(levels, book, mode, &bytes);
      std::vector<int8_t> decoded(levels.size());
      size_t consumed = 0;
      for (size_t length = 0; length < bytes.size(); ++length) {
        const std::vector<char> cut(bytes.begin(), bytes.begin() + length);
        const absl::Status status =
            DecodeLevels(absl::string_view(cut.data(), cut.size()), book, mode,
                         absl::MakeSpan(decoded), &consumed);
        // A range code that lacks a byte or two may be another one.
        EXPECT_TRUE(!status.ok() ||
                    (mode == LevelMode::kAdaptive && consumed <= length));
      }
    }
    std::string bytes;
    AppendLevels(std::vector<int8_t>{1, -1, 1}, book, LevelMode::kPacked,
                 &bytes);
    bytes.back() = static_cast<char>(bytes.back() | 0x80);
    int8_t decoded[3];
    size_t consumed = 0;
    EXPECT_THAT(
        DecodeLevels(bytes, book, LevelMode::kPacked, decoded, &consumed),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("padding")));
  }
}

TEST(LevelCoderTest, CountsBeyondTheBytesAreRefusedAtOnce) {
  std::vector<int8_t> decoded(1000);
  size_t consumed = 0;
  for (const LevelMode mode : kModes) {
    EXPECT_THAT(
        DecodeLevels("abcd", 2, mode, absl::MakeSpan(decoded), &consumed),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1000 values")));
  }
}

TEST(LevelCoderTest, AnyBytesDecodeToLevelsOrAnError) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    std::vector<char> bytes(rng.UniformInt(60));
    for (char& c : bytes) c = static_cast<char>(rng.Next32());
    const int book = kBooks[rng.UniformInt(4)];
    std::vector<int8_t> decoded(rng.UniformInt(200));
    size_t consumed = 0;
    if (!DecodeLevels(absl::string_view(bytes.data(), bytes.size()), book,
                      kModes[seed % 2], absl::MakeSpan(decoded), &consumed)
             .ok()) {
      continue;
    }
    EXPECT_LE(consumed, bytes.size());
    for (const int8_t level : decoded) {
      EXPECT_TRUE(level != 0 && std::abs(level) <= book) << int{level};
    }
  }
}

TEST(LevelCoderTest, IntegersRoundTrip) {
  for (const int bits : {4, 8}) {
    const int limit = bits == 4 ? 7 : 127;
    for (size_t count = 0; count < 50; ++count) {
      SCOPED_TRACE(absl::StrCat("seed ", count, ", bits ", bits));
      RandomStream rng(count, RandomPurpose::kTest);
      std::vector<int16_t> values(count);
      for (int16_t& v : values) {
        v = static_cast<int16_t>(static_cast<int>(rng.UniformInt(
                                     static_cast<uint32_t>(2 * limit + 1))) -
                                 limit);
      }
      const std::vector<int8_t> bytes_of(values.begin(), values.end());
      std::string bytes, same;
      AppendIntegers(values, bits, &bytes);
      AppendIntegers(bytes_of, bits, &same);
      EXPECT_EQ(bytes, same);
      EXPECT_EQ(bytes.size(), (count * static_cast<size_t>(bits) + 7) / 8);
      std::vector<int16_t> decoded(count);
      size_t consumed = 0;
      RV_ASSERT_OK(DecodeIntegers(bytes + "tail and more", bits,
                                  absl::MakeSpan(decoded), &consumed));
      EXPECT_EQ(consumed, bytes.size());
      EXPECT_EQ(decoded, values);
    }
  }
  std::string bytes;
  AppendIntegers(std::vector<int8_t>{1, -2, 7}, 4, &bytes);
  EXPECT_EQ(bytes, "\xE1\x07");
}

TEST(LevelCoderTest, TheLowestIntegerIsRefused) {
  int8_t decoded[11];
  size_t consumed = 0;
  // Everywhere: in whole words and in the rest.
  for (size_t at = 0; at < std::size(decoded); ++at) {
    std::string bytes(11, '\0');
    bytes[at] = '\x80';
    EXPECT_THAT(DecodeIntegers(bytes, 8, decoded, &consumed),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("value ", at, " is -128"))));
    std::string nibbles(6, '\0');
    nibbles[at / 2] = at % 2 == 0 ? '\x08' : '\x80';
    EXPECT_THAT(DecodeIntegers(nibbles + "0123456789", 4, decoded, &consumed),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("value ", at, " is -8"))));
  }
  EXPECT_THAT(DecodeIntegers("1234567890", 8, decoded, &consumed),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

using LevelCoderDeathTest = ::testing::Test;
TEST(LevelCoderDeathTest, DiesIfALevelIsBeyondTheBook) {
  std::string bytes;
  for (const LevelMode mode : kModes) {
    EXPECT_DEATH(AppendLevels(std::vector<int8_t>{1, 3}, 2, mode, &bytes), "");
    EXPECT_DEATH(AppendLevels(std::vector<int8_t>{1, 1, 1, 1, 1, 1, 1, 0, 1}, 8,
                              mode, &bytes),
                 "");
  }
}

}  // namespace
}  // namespace rivulet
