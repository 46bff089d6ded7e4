#include "compression/range_coder.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<bool> RandomBits(RandomStream& rng, size_t count, double one) {
  std::vector<bool> bits(count);
  for (size_t i = 0; i < count; ++i) bits[i] = rng.UniformDouble() < one;
  return bits;
}

std::string Encode(const std::vector<bool>& bits) {
  std::string bytes;
  AdaptiveBit model;
  RangeEncoder encoder(&bytes);
  for (const bool bit : bits) encoder.EncodeBit(&model, bit);
  encoder.Finish();
  return bytes;
}

// What the bits cost by the model, in bytes.
double IdealBytes(const std::vector<bool>& bits) {
  AdaptiveBit model;
  double cost = 0;
  for (const bool bit : bits) {
    const double one = model.probability() / 65536.0;
    cost -= std::log2(bit ? one : 1 - one);
    model.Update(bit);
  }
  return cost / 8;
}

void ExpectRoundTrip(const std::vector<bool>& bits) {
  const std::string bytes = Encode(bits);
  for (const char* tail : {"", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                           "\x01\x01\x01\x01\x01\x01\x01\x01\x01"}) {
    const std::string input = bytes + tail;
    AdaptiveBit model;
    RangeDecoder decoder(input);
    for (size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(decoder.DecodeBit(&model), bits[i]) << "bit " << i;
    }
    size_t consumed = 0;
    RV_ASSERT_OK(decoder.Finish(&consumed));
    EXPECT_EQ(consumed, bytes.size());
  }
}

TEST(RangeCoderTest, RandomBitsRoundTripWhateverFollows) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    const double one = seed % 10 == 0 ? 0 : std::pow(rng.UniformDouble(), 4);
    ExpectRoundTrip(RandomBits(rng, rng.UniformInt(2000), one));
  }
}

TEST(RangeCoderTest, ShortListsRoundTrip) {
  ExpectRoundTrip({});
  EXPECT_EQ(Encode({}), "");
  ExpectRoundTrip({false});
  ExpectRoundTrip({true});
  EXPECT_EQ(Encode({true}).size(), 1u);
  // All lists of up to 10 bits.
  for (unsigned length = 1; length <= 10; ++length) {
    for (unsigned list = 0; list < 1u << length; ++list) {
      std::vector<bool> bits(length);
      for (unsigned i = 0; i < length; ++i) bits[i] = (list >> i & 1) != 0;
      ExpectRoundTrip(bits);
    }
  }
}

TEST(RangeCoderTest, EqualBitsCostNextToNothing) {
  for (const bool bit : {false, true}) {
    const std::vector<bool> bits(100000, bit);
    ExpectRoundTrip(bits);
    EXPECT_LE(Encode(bits).size(), 8u);
  }
}

TEST(RangeCoderTest, LengthIsThatOfTheModel) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    const auto bits =
        RandomBits(rng, rng.UniformInt(5000), rng.UniformDouble());
    EXPECT_LE(static_cast<double>(Encode(bits).size()),
              IdealBytes(bits) * 1.0001 + 1.3);
  }
}

TEST(RangeCoderTest, LengthIsWithinOnePercentOfTheEntropy) {
  for (const double one : {0.5, 0.1, 0.01, 0.9}) {
    SCOPED_TRACE(absl::StrCat("seed 7, probability ", one));
    RandomStream rng(7, RandomPurpose::kTest);
    const auto bits = RandomBits(rng, 100000, one);
    double ones = 0;
    for (const bool bit : bits) ones += bit ? 1 : 0;
    const double n = static_cast<double>(bits.size());
    const double p = ones / n;
    const double entropy =
        -n * (p * std::log2(p) + (1 - p) * std::log2(1 - p)) / 8;
    EXPECT_LE(static_cast<double>(Encode(bits).size()), 1.01 * entropy + 4);
  }
}

TEST(RangeCoderTest, FieldsAndContextsMix) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    // -1: an adaptive bit in one of three contexts; else a field of that width.
    std::vector<std::pair<int, uint32_t>> symbols(rng.UniformInt(500));
    for (auto& [width, value] : symbols) {
      width = static_cast<int>(rng.UniformInt(18)) - 1;
      value = width <= 0 ? rng.UniformInt(2) : rng.Next32() >> (32 - width);
      if (width == 0) value = 0;
    }
    std::string bytes = "before";
    AdaptiveBit models[3];
    RangeEncoder encoder(&bytes);
    for (size_t i = 0; i < symbols.size(); ++i) {
      const auto& [width, value] = symbols[i];
      if (width < 0) {
        encoder.EncodeBit(&models[i % 3], value != 0);
      } else {
        encoder.EncodeRaw(value, width);
      }
    }
    encoder.Finish();
    EXPECT_EQ(bytes.substr(0, 6), "before") << "no carry leaves the code";
    AdaptiveBit decoded_models[3];
    RangeDecoder decoder(absl::string_view(bytes).substr(6));
    for (size_t i = 0; i < symbols.size(); ++i) {
      const auto& [width, value] = symbols[i];
      ASSERT_EQ(width < 0 ? uint32_t{decoder.DecodeBit(&decoded_models[i % 3])}
                          : decoder.DecodeRaw(width),
                value);
    }
    size_t consumed = 0;
    RV_ASSERT_OK(decoder.Finish(&consumed));
    EXPECT_EQ(consumed, bytes.size() - 6);
  }
}

TEST(RangeCoderTest, EveryCutIsSeen) {
  RandomStream rng(11, RandomPurpose::kTest);
  const auto bits = RandomBits(rng, 3000, 0.3);
  const std::string bytes = Encode(bits);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<char> cut(bytes.begin(), bytes.begin() + length);
    AdaptiveBit model;
    RangeDecoder decoder(absl::string_view(cut.data(), cut.size()));
    for (size_t i = 0; i < bits.size(); ++i) decoder.DecodeBit(&model);
    size_t consumed = 0;
    // What comes after a cut are zeros, so the length differs a little.
    const absl::Status status = decoder.Finish(&consumed);
    if (length + 8 < bytes.size()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("cut off")));
    }
    EXPECT_TRUE(!status.ok() || consumed <= length);
  }
}

TEST(RangeCoderTest, AnyBytesDecodeToSomethingOrAnError) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    std::vector<char> bytes(rng.UniformInt(40));
    for (char& c : bytes) {
      c = static_cast<char>(seed % 3 == 0 ? 0xFF : rng.Next32());
    }
    AdaptiveBit model;
    RangeDecoder decoder(absl::string_view(bytes.data(), bytes.size()));
    for (int i = 0; i < 200; ++i) {
      if (i % 5 == 0) {
        EXPECT_LT(decoder.DecodeRaw(5), 32u);
      } else {
        decoder.DecodeBit(&model);
      }
    }
    size_t consumed = 0;
    if (decoder.Finish(&consumed).ok()) {
      EXPECT_LE(consumed, bytes.size());
    }
  }
}

TEST(RangeCoderTest, BytesOfASmallCode) {
  // Fixes the format: a one at 1/2, a field of 4 bits, two zeros.
  std::string bytes;
  AdaptiveBit model;
  RangeEncoder encoder(&bytes);
  encoder.EncodeBit(&model, true);
  encoder.EncodeRaw(0xA, 4);
  encoder.EncodeBit(&model, false);
  encoder.EncodeBit(&model, false);
  encoder.Finish();
  // The interval after the field is [10, 11) / 32 less rounding; a zero at 3/4
  // for a one leaves its last quarter, one at 1/2 the last half of that.
  // 10.875/32 to 11/32 is 0x57 to 0x58 in 1/256.
  EXPECT_EQ(bytes, std::string("\x57\x00", 2));
}

}  // namespace
}  // namespace rivulet
