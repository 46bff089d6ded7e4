#include "compression/rice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
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

constexpr int64_t kMaxSize = std::numeric_limits<uint32_t>::max();

// Each element is chosen with probability `density`.
std::vector<uint32_t> RandomPositions(RandomStream& rng, uint32_t size,
                                      double density) {
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < size; ++i) {
    if (rng.UniformDouble() < density) positions.push_back(i);
  }
  return positions;
}

TEST(BitIoTest, WhatIsWrittenIsReadBack) {
  RandomStream rng(1, RandomPurpose::kTest);
  std::string bytes;
  BitWriter writer(&bytes);
  std::vector<std::pair<int, uint32_t>> written;
  for (int i = 0; i < 2000; ++i) {
    if (rng.UniformInt(2) == 0) {
      const uint32_t ones = rng.UniformInt(i % 10 == 0 ? 300 : 5);
      written.emplace_back(-1, ones);
      writer.WriteUnary(ones);
    } else {
      const int bits = static_cast<int>(rng.UniformInt(33));
      const uint32_t value = bits == 0 ? 0 : rng.Next32() >> (32 - bits);
      written.emplace_back(bits, value);
      writer.Write(value, bits);
    }
  }
  writer.Finish();
  BitReader reader(bytes);
  for (const auto& [bits, value] : written) {
    uint32_t read = 0;
    ASSERT_TRUE(bits < 0 ? reader.ReadUnary(300, &read)
                         : reader.Read(bits, &read));
    ASSERT_EQ(read, value);
  }
  size_t num_bytes = 0;
  EXPECT_TRUE(reader.Finish(&num_bytes));
  EXPECT_EQ(num_bytes, bytes.size());
}

TEST(BitIoTest, ReadersStopAtTheEnd) {
  uint32_t value = 0;
  BitReader ones("\xFF\xFF");
  EXPECT_FALSE(ones.ReadUnary(1000, &value));
  BitReader many("\xFF\x7F");
  EXPECT_FALSE(many.ReadUnary(14, &value));
  BitReader short_input("\xFF");
  EXPECT_FALSE(short_input.Read(9, &value));
  BitReader empty("");
  EXPECT_FALSE(empty.ReadUnary(5, &value));
}

TEST(BitIoTest, PackerWritesWhatTheWriterDoes) {
  RandomStream rng(2, RandomPurpose::kTest);
  std::string bytes;
  BitWriter writer(&bytes);
  std::string packed(100000, 'x');
  BitPacker packer(packed.data());
  for (int i = 0; i < 2000; ++i) {
    if (rng.UniformInt(2) == 0) {
      const uint32_t ones = rng.UniformInt(i % 10 == 0 ? 300 : 5);
      writer.WriteUnary(ones);
      packer.PutOnes(ones);
      packer.Put(0, 1);
    } else {
      const int bits = static_cast<int>(rng.UniformInt(33));
      const uint32_t value = bits == 0 ? 0 : rng.Next32() >> (32 - bits);
      writer.Write(value, bits);
      packer.Put(value, bits);
    }
  }
  writer.Finish();
  packed.resize(static_cast<size_t>(packer.Finish() - packed.data()));
  EXPECT_EQ(packed, bytes);
}

TEST(BitIoTest, PackerFillsAllItsBits) {
  std::string packed(64, 'x');
  BitPacker packer(packed.data());
  packer.Put(0x7F, 7);
  packer.Put(0xABCDEF01234567, BitPacker::kMaxBits);
  packer.Put(1, 1);
  packed.resize(static_cast<size_t>(packer.Finish() - packed.data()));
  BitReader reader(packed);
  uint32_t value = 0;
  ASSERT_TRUE(reader.Read(7, &value));
  EXPECT_EQ(value, 0x7Fu);
  ASSERT_TRUE(reader.Read(28, &value));
  EXPECT_EQ(value, 0x1234567u);
  ASSERT_TRUE(reader.Read(28, &value));
  EXPECT_EQ(value, 0xABCDEF0u);
  ASSERT_TRUE(reader.Read(1, &value));
  EXPECT_EQ(value, 1u);
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(BitIoTest, VarintsRoundTripAndHaveOneForm) {
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{16383},
        uint64_t{16384}, uint64_t{0xFFFFFFFF}, (uint64_t{1} << 63) - 1}) {
    std::string bytes;
    AppendVarint(value, &bytes);
    EXPECT_EQ(static_cast<int>(bytes.size()), VarintLength(value));
    ByteReader reader(bytes);
    uint64_t read = 1;
    ASSERT_TRUE(reader.ReadVarint(&read));
    EXPECT_EQ(read, value);
    EXPECT_EQ(reader.remaining(), 0u);
  }
  uint64_t value = 0;
  for (const absl::string_view bad :
       {absl::string_view("\x80\x00", 2), absl::string_view("\x81", 1),
        absl::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 10)}) {
    ByteReader reader(bad);
    EXPECT_FALSE(reader.ReadVarint(&value));
  }
}

TEST(BitIoTest, ZigZagKeepsSmallNumbersSmall) {
  EXPECT_EQ(ZigZag(0), 0u);
  EXPECT_EQ(ZigZag(-1), 1u);
  EXPECT_EQ(ZigZag(1), 2u);
  for (const int64_t value :
       {int64_t{-4294967295}, int64_t{-7}, int64_t{63}, int64_t{4294967295}}) {
    EXPECT_EQ(UnZigZag(ZigZag(value)), value);
  }
}

TEST(RiceTest, RandomPositionsRoundTripInTheAnnouncedSize) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    const uint32_t size = 1 + rng.UniformInt(20000);
    const double density = std::pow(10, -4 * rng.UniformDouble());
    auto positions = RandomPositions(rng, size, density);
    if (positions.empty()) positions = {size - 1};
    const uint32_t base = rng.UniformInt(1000);
    for (uint32_t& p : positions) p += base;
    const RiceSize best = BestRice(positions, base);
    std::string bytes;
    AppendRice(positions, base, best.parameter, &bytes);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), best.num_bytes);
    std::vector<uint32_t> decoded;
    size_t consumed = 0;
    RV_ASSERT_OK(DecodeRice(bytes + "tail", positions.size(), best.parameter,
                            size, &decoded, &consumed));
    EXPECT_EQ(consumed, bytes.size());
    for (uint32_t& p : decoded) p += base;
    EXPECT_EQ(decoded, positions);
  }
}

// Every parameter, so that codes of all lengths meet the fast path, the careful
// one and the borders between them.
TEST(RiceTest, EveryParameterDecodesWhatItCodes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int k = 0; k <= kMaxRiceParameter; ++k) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", parameter ", k));
      RandomStream rng(seed, RandomPurpose::kTest, static_cast<uint64_t>(k));
      // Mostly short gaps, some of up to 2,000 bits.
      std::vector<uint32_t> positions;
      uint64_t next = 0;
      const size_t count = 1 + rng.UniformInt(60);
      while (positions.size() < count) {
        const uint64_t quotient =
            rng.UniformInt(8) == 0 ? rng.UniformInt(2000) : rng.UniformInt(4);
        const uint64_t low = rng.Next64() & ((uint64_t{1} << k) - 1);
        next += (quotient << k) + low;
        if (next >= static_cast<uint64_t>(kMaxSize)) break;
        positions.push_back(static_cast<uint32_t>(next++));
      }
      std::string bytes;
      AppendRice(positions, 0, k, &bytes);
      std::string expected;
      BitWriter writer(&expected);
      uint32_t from = 0;
      for (const uint32_t p : positions) {
        writer.WriteUnary((p - from) >> k);
        writer.Write((p - from) & ((uint32_t{1} << k) - 1), k);
        from = p + 1;
      }
      writer.Finish();
      ASSERT_EQ(bytes, expected);
      std::vector<uint32_t> decoded(positions.size());
      size_t consumed = 0;
      RV_ASSERT_OK(
          DecodeRice(bytes, k, kMaxSize, absl::MakeSpan(decoded), &consumed));
      EXPECT_EQ(consumed, bytes.size());
      EXPECT_EQ(decoded, positions);
      // The same with other bytes behind it.
      RV_ASSERT_OK(DecodeRice(bytes + "a long enough tail", k, kMaxSize,
                              absl::MakeSpan(decoded), &consumed));
      EXPECT_EQ(consumed, bytes.size());
      EXPECT_EQ(decoded, positions);
    }
  }
}

TEST(RiceTest, EveryCutAndEverySizeTooSmallIsRefused) {
  RandomStream rng(5, RandomPurpose::kTest);
  const auto positions = RandomPositions(rng, 20000, 0.01);
  const RiceSize best = BestRice(positions, 0);
  std::string bytes;
  AppendRice(positions, 0, best.parameter, &bytes);
  std::vector<uint32_t> decoded(positions.size());
  size_t consumed = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    // In memory of its own, so that a sanitizer sees a read beyond it.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + length);
    EXPECT_THAT(
        DecodeRice(absl::string_view(cut.data(), cut.size()), best.parameter,
                   20000, absl::MakeSpan(decoded), &consumed),
        StatusIs(absl::StatusCode::kInvalidArgument));
  }
  for (int64_t size = positions.back(); size >= 10000; size -= 97) {
    const absl::Status status = DecodeRice(bytes, best.parameter, size,
                                           absl::MakeSpan(decoded), &consumed);
    EXPECT_FALSE(status.ok());
  }
  EXPECT_THAT(DecodeRice(bytes, best.parameter, positions.back(),
                         absl::MakeSpan(decoded), &consumed),
              StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(RiceTest, DamagedCodesEndAndStayInRange) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    std::string bytes(rng.UniformInt(200), '\0');
    for (char& c : bytes) {
      c = static_cast<char>(rng.UniformInt(3) == 0 ? 0xFF : rng.Next32());
    }
    const int k = static_cast<int>(rng.UniformInt(kMaxRiceParameter + 1));
    const int64_t size = seed % 2 == 0 ? kMaxSize : 1000 + rng.UniformInt(1000);
    std::vector<uint32_t> decoded;
    size_t consumed = 0;
    const absl::Status status =
        DecodeRice(bytes, rng.UniformInt(60), k, size, &decoded, &consumed);
    if (!status.ok()) continue;
    EXPECT_LE(consumed, bytes.size());
    int64_t next = 0;
    for (const uint32_t p : decoded) {
      EXPECT_GE(p, next);
      EXPECT_LT(p, size);
      next = int64_t{p} + 1;
    }
  }
}

TEST(RiceTest, AnEmptyListTakesNoByte) {
  std::string bytes;
  AppendRice({}, 0, 5, &bytes);
  EXPECT_EQ(bytes, "");
  EXPECT_EQ(BestRice({}, 0).num_bytes, 0);
  size_t consumed = 7;
  RV_EXPECT_OK(DecodeRice("tail", 5, 10, {}, &consumed));
  EXPECT_EQ(consumed, 0u);
}

TEST(RiceTest, ParameterIsTheBestOfAll) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    auto positions =
        RandomPositions(rng, 5000, std::pow(10, -3 * rng.UniformDouble()));
    if (positions.empty()) positions = {0};
    // Clusters, so that the gaps are far from geometric.
    if (seed % 2 == 1) {
      for (size_t i = positions.size() / 2; i < positions.size(); ++i) {
        positions[i] += 1000000;
      }
    }
    size_t smallest = std::numeric_limits<size_t>::max();
    for (int k = 0; k <= kMaxRiceParameter; ++k) {
      std::string bytes;
      AppendRice(positions, 0, k, &bytes);
      smallest = std::min(smallest, bytes.size());
    }
    EXPECT_EQ(BestRice(positions, 0).num_bytes, static_cast<int64_t>(smallest));
  }
}

TEST(RiceTest, LastPositionOfTheLargestTensorRoundTrips) {
  const std::vector<uint32_t> positions = {static_cast<uint32_t>(kMaxSize - 1)};
  const RiceSize best = BestRice(positions, 0);
  EXPECT_LE(best.num_bytes, 5);
  std::string bytes;
  AppendRice(positions, 0, best.parameter, &bytes);
  std::vector<uint32_t> decoded;
  size_t consumed = 0;
  RV_ASSERT_OK(
      DecodeRice(bytes, 1, best.parameter, kMaxSize, &decoded, &consumed));
  EXPECT_EQ(decoded, positions);
}

TEST(RiceTest, CodeIsWithinOnePercentOfTheEntropyAtTypicalDensities) {
  RandomStream rng(3, RandomPurpose::kTest);
  const double density = 0.01;
  const auto positions = RandomPositions(rng, 400000, density);
  const double entropy =
      -(density * std::log2(density) + (1 - density) * std::log2(1 - density)) /
      density;
  const double bits = 8.0 *
                      static_cast<double>(BestRice(positions, 0).num_bytes) /
                      static_cast<double>(positions.size());
  EXPECT_NEAR(bits / entropy, 1, 0.015);
}

TEST(RiceTest, MalformedCodesAreRefused) {
  std::vector<uint32_t> decoded;
  size_t consumed = 0;
  // A forged count must not be believed, or allocated for.
  const std::string plenty(1000, '\0');
  EXPECT_THAT(DecodeRice(plenty, 8000, 0, 7999, &decoded, &consumed),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("8000 positions announced")));
  EXPECT_EQ(decoded.capacity(), 0u) << "nothing is reserved for it";
  EXPECT_THAT(DecodeRice("ab", uint64_t{1} << 62, 3, uint64_t{1} << 62,
                         &decoded, &consumed),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fit")));
  EXPECT_EQ(decoded.capacity(), 0u);
  EXPECT_THAT(DecodeRice("\xFF", 1, 0, 1000, &decoded, &consumed),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // Position 4 in 4 elements, twice: as one gap and as a sum of gaps.
  EXPECT_THAT(DecodeRice("\x0F", 1, 0, 4, &decoded, &consumed),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(
      DecodeRice(absl::string_view("\x08", 1), 4, 0, 4, &decoded, &consumed),
      StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(
      DecodeRice("\x82", 1, 0, 100, &decoded, &consumed),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("padding")));
}

}  // namespace
}  // namespace rivulet
