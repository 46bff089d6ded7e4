#include "common/base/crc32c.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

// Bit by bit, from the polynomial.
uint32_t NaiveCrc32c(absl::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    }
  }
  return ~crc;
}

// RFC 3720, appendix B.4.
TEST(Crc32cTest, EqualsThePublishedValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST(Crc32cTest, EqualsTheNaiveOneAtEveryLengthAndSplit) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  RandomStream rng(kSeed, RandomPurpose::kTest);
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    const uint32_t expected = NaiveCrc32c(bytes);
    ASSERT_EQ(Crc32c(bytes), expected) << length;
    const size_t cut = rng.UniformInt(static_cast<uint32_t>(length) + 1);
    const absl::string_view view = bytes;
    ASSERT_EQ(ExtendCrc32c(Crc32c(view.substr(0, cut)), view.substr(cut)),
              expected)
        << length << " cut at " << cut;
    bytes.push_back(static_cast<char>(rng.Next32()));
  }
}

// Why the mask is there.
TEST(Crc32cTest, OnlyTheMaskedFormTellsBytesApartThatCarryTheirOwnChecksum) {
  const auto followed_by = [](std::string bytes, uint32_t crc) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>((crc >> shift) & 0xff));
    }
    return Crc32c(bytes);
  };
  EXPECT_EQ(followed_by("one", Crc32c("one")),
            followed_by("two", Crc32c("two")));
  EXPECT_NE(followed_by("one", MaskedCrc32c("one")),
            followed_by("two", MaskedCrc32c("two")));
  // LevelDB's Mask(0xE3069283).
  EXPECT_EQ(MaskedCrc32c("123456789"),
            0xE3069283u / 32768 + (0xE3069283u << 17) + 0xa282ead8u);
}

}  // namespace
}  // namespace rivulet
