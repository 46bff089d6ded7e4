#include "compression/level_coder.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "compression/bit_io.h"
#include "compression/range_coder.h"

namespace rivulet {
namespace {

// Eight symbols at a time are the bytes of a word, the first the lowest.
constexpr size_t kLanes = 8;
constexpr uint64_t kEach = 0x0101010101010101;

int IndexBits(int book) {
  RV_CHECK(book == 1 || book == 2 || book == 4 || book == 8) << book;
  return std::countr_zero(static_cast<unsigned>(book));
}

// The lowest `bits` of each `lane` bits of a word.
constexpr uint64_t LaneMask(int bits, int lane) {
  uint64_t mask = 0;
  for (int at = 0; at < 64; at += lane) {
    mask |= ((uint64_t{1} << bits) - 1) << at;
  }
  return mask;
}

// The low kBits of each byte, side by side, and back.
template <int kBits>
uint64_t Squeeze(uint64_t lanes) {
  lanes = (lanes | lanes >> (8 - kBits)) & LaneMask(2 * kBits, 16);
  lanes = (lanes | lanes >> (16 - 2 * kBits)) & LaneMask(4 * kBits, 32);
  return (lanes | lanes >> (32 - 4 * kBits)) & LaneMask(8 * kBits, 64);
}
template <int kBits>
uint64_t Spread(uint64_t word) {
  word &= LaneMask(8 * kBits, 64);
  word = (word | word << (32 - 4 * kBits)) & LaneMask(4 * kBits, 32);
  word = (word | word << (16 - 2 * kBits)) & LaneMask(2 * kBits, 16);
  return (word | word << (8 - kBits)) & LaneMask(kBits, 8);
}

template <typename Int>
uint64_t LoadLanes(const Int* values, size_t count = kLanes) {
  if constexpr (sizeof(Int) == 1) {
    if (count == kLanes) {
      return LoadWord(reinterpret_cast<const char*>(values));
    }
  }
  uint64_t lanes = 0;
  for (size_t i = 0; i < count; ++i) {
    lanes |= uint64_t{static_cast<uint8_t>(values[i])} << (8 * i);
  }
  return lanes;
}
template <typename Int>
void StoreLanes(uint64_t lanes, Int* values, size_t count = kLanes) {
  if constexpr (sizeof(Int) == 1) {
    if (count == kLanes) {
      StoreWord(lanes, reinterpret_cast<char*>(values));
      return;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const int byte = static_cast<int>(lanes >> (8 * i) & 0xFF);
    values[i] = static_cast<Int>((byte ^ 0x80) - 0x80);
  }
}

// Byte by byte: 1 where the level is negative, and its index.
uint64_t Signs(uint64_t levels) { return levels >> 7 & kEach; }
uint64_t Indices(uint64_t levels) {
  // -l - 1 is ~l; l - 1 does not borrow, unless l is 0.
  const uint64_t signs = Signs(levels);
  return (levels ^ signs * 0xFF) - (kEach - signs);
}
uint64_t Levels(uint64_t signs, uint64_t indices) {
  return (indices + (kEach - signs)) ^ signs * 0xFF;
}

// What packing makes of eight values, and back. Encode sets bits of *bad where
// a value is none; so does Decode.
template <int kIndexBits>
struct LevelLanes {
  static constexpr int kBits = 1 + kIndexBits;
  static uint64_t Encode(uint64_t levels, uint64_t* bad) {
    const uint64_t indices = Indices(levels);
    *bad |= indices & ~LaneMask(kIndexBits, 8);
    return Signs(levels) | indices << 1;
  }
  static uint64_t Decode(uint64_t lanes, uint64_t*) {
    return Levels(lanes & kEach, lanes >> 1 & LaneMask(kIndexBits, 8));
  }
};
struct SignLanes {
  static constexpr int kBits = 1;
  static uint64_t Encode(uint64_t levels, uint64_t*) { return Signs(levels); }
};
struct NibbleLanes {
  static constexpr int kBits = 4;
  static uint64_t Encode(uint64_t values, uint64_t* bad) {
    const uint64_t low = values & LaneMask(4, 8);
    *bad |= (values ^ Extend(low)) | IsLowest(low);
    return low;
  }
  static uint64_t Decode(uint64_t lanes, uint64_t* bad) {
    *bad |= IsLowest(lanes);
    return Extend(lanes);
  }
  // The sign, bit 3, into bits 4 to 7.
  static uint64_t Extend(uint64_t lanes) {
    return lanes | (lanes >> 3 & kEach) * 0xF0;
  }
  // Bit 3 of -8: 8 + 7 does not carry into the next one's bits, 9 + 7 does.
  static uint64_t IsLowest(uint64_t lanes) {
    const uint64_t is_eight = lanes ^ 8 * kEach;  // 0 there
    return ~(is_eight + 15 * kEach) >> 4 & kEach;
  }
};
struct ByteLanes {
  static constexpr int kBits = 8;
  static uint64_t Encode(uint64_t values, uint64_t* bad) {
    return Decode(values, bad);
  }
  static uint64_t Decode(uint64_t lanes, uint64_t* bad) {
    // -128 is the byte with its high bit alone.
    const uint64_t low = lanes & 0x7F * kEach;
    *bad |= lanes & ~(low + 0x7F * kEach) & 0x80 * kEach;
    return lanes;
  }
};

constexpr size_t PackedBytes(size_t count, int bits) {
  return (count * static_cast<size_t>(bits) + 7) / 8;
}

template <typename Lanes, typename Int>
void Pack(absl::Span<const Int> values, std::string* out) {
  const size_t start = out->size();
  const size_t num_bytes = PackedBytes(values.size(), Lanes::kBits);
  out->resize(start + num_bytes + sizeof(uint64_t));
  char* to = out->data() + start;
  uint64_t bad = 0;
  const auto squeeze = [](uint64_t lanes) {
    if constexpr (Lanes::kBits == 8) {
      return lanes;
    } else {
      return Squeeze<Lanes::kBits>(lanes);
    }
  };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    const uint64_t lanes = Lanes::Encode(LoadLanes(values.data() + i), &bad);
    StoreWord(squeeze(lanes), to);
    to += Lanes::kBits;
  }
  if (const size_t rest = values.size() - i; rest > 0) {
    // The last value stands in for those that are missing.
    uint64_t lanes = LoadLanes(values.data() + i, rest);
    for (size_t j = rest; j < kLanes; ++j) {
      lanes |= uint64_t{static_cast<uint8_t>(values.back())} << (8 * j);
    }
    lanes = Lanes::Encode(lanes, &bad) & ((uint64_t{1} << (8 * rest)) - 1);
    StoreWord(squeeze(lanes), to);
  }
  RV_CHECK_EQ(bad, 0u) << "a value is out of range";
  out->resize(start + num_bytes);
}

template <typename Lanes, typename Int>
absl::Status Unpack(absl::string_view bytes, absl::Span<Int> out,
                    size_t* consumed) {
  const size_t num_bytes = PackedBytes(out.size(), Lanes::kBits);
  if (out.size() > 8 * bytes.size() || num_bytes > bytes.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%u values of %d bits announced, but %u bytes are left for them",
        out.size(), Lanes::kBits, bytes.size()));
  }
  const auto spread = [](uint64_t word) {
    if constexpr (Lanes::kBits == 8) {
      return word;
    } else {
      return Spread<Lanes::kBits>(word);
    }
  };
  uint64_t bad = 0;
  const char* from = bytes.data();
  const char* const end = from + bytes.size();
  size_t i = 0;
  for (; i + kLanes <= out.size() &&
         static_cast<size_t>(end - from) >= sizeof(uint64_t);
       i += kLanes) {
    StoreLanes(Lanes::Decode(spread(LoadWord(from)), &bad), out.data() + i);
    from += Lanes::kBits;
  }
  const char* const last = bytes.data() + num_bytes;
  while (i < out.size()) {
    const size_t count = std::min(kLanes, out.size() - i);
    uint64_t word = 0;
    const size_t length = PackedBytes(count, Lanes::kBits);
    for (size_t j = 0; j < length; ++j) {
      word |= uint64_t{static_cast<uint8_t>(from[j])} << (8 * j);
    }
    const int used = static_cast<int>(count) * Lanes::kBits;
    if (used < 64 && word >> used != 0) {
      return absl::InvalidArgumentError("padding after the values is not zero");
    }
    StoreLanes(Lanes::Decode(spread(word), &bad), out.data() + i, count);
    from += length;
    i += count;
  }
  RV_CHECK(from == last);
  if (bad != 0) {
    const int lowest = -(1 << (Lanes::kBits - 1));
    const auto at = std::find(out.begin(), out.end(), lowest);
    return absl::InvalidArgumentError(
        absl::StrFormat("value %u is %d; allowed: %d to %d", at - out.begin(),
                        lowest, lowest + 1, -lowest - 1));
  }
  *consumed = num_bytes;
  return absl::OkStatus();
}

template <int kIndexBits, typename Int>
void AppendAdaptive(absl::Span<const Int> levels, std::string* out) {
  out->reserve(out->size() + PackedBytes(levels.size(), 1 + kIndexBits) + 16);
  Pack<SignLanes>(levels, out);
  AdaptiveBit tree[1 << kIndexBits];
  RangeEncoder encoder(out);
  for (const Int level : levels) {
    const unsigned index =
        static_cast<unsigned>(level < 0 ? ~level : level - 1);
    RV_CHECK_EQ(index >> kIndexBits, 0u) << "level " << int{level};
    unsigned node = 1;
    for (int bit = kIndexBits - 1; bit >= 0; --bit) {
      const bool is_set = (index >> bit & 1) != 0;
      encoder.EncodeBit(&tree[node], is_set);
      node = 2 * node + (is_set ? 1 : 0);
    }
  }
  encoder.Finish();
}

template <int kIndexBits, typename Int>
absl::Status DecodeAdaptive(absl::string_view bytes, absl::Span<Int> out,
                            size_t* consumed) {
  size_t sign_bytes = 0;
  RV_RETURN_IF_ERROR((Unpack<LevelLanes<0>, Int>(bytes, out, &sign_bytes)));
  AdaptiveBit tree[1 << kIndexBits];
  RangeDecoder decoder(bytes.substr(sign_bytes));
  for (Int& level : out) {
    unsigned node = 1;
    for (int bit = 0; bit < kIndexBits; ++bit) {
      node = 2 * node + (decoder.DecodeBit(&tree[node]) ? 1 : 0);
    }
    // The index with the sign of 1 or -1.
    const int index = static_cast<int>(node) - (1 << kIndexBits);
    level = static_cast<Int>(level < 0 ? ~index : index + 1);
  }
  size_t range_bytes = 0;
  RV_RETURN_IF_ERROR(decoder.Finish(&range_bytes));
  *consumed = sign_bytes + range_bytes;
  return absl::OkStatus();
}

// Calls f with the number of index bits as a constant.
template <typename F>
auto WithIndexBits(int book, F f) {
  switch (IndexBits(book)) {
    case 0:
      return f(std::integral_constant<int, 0>());
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    default:
      return f(std::integral_constant<int, 3>());
  }
}

template <typename Int>
void AppendMode(absl::Span<const Int> levels, int book, LevelMode mode,
                std::string* out) {
  WithIndexBits(book, [&](auto index_bits) {
    if (mode == LevelMode::kPacked) {
      Pack<LevelLanes<index_bits>>(levels, out);
    } else {
      AppendAdaptive<index_bits>(levels, out);
    }
  });
}

template <typename Int>
LevelMode AppendShorter(absl::Span<const Int> levels, int book,
                        std::string* out) {
  const size_t start = out->size();
  const auto packed =
      static_cast<size_t>(PackedLevelBytes(levels.size(), book));
  if (book > 1) {
    AppendMode(levels, book, LevelMode::kAdaptive, out);
    if (out->size() - start < packed) return LevelMode::kAdaptive;
    out->resize(start);
  }
  AppendMode(levels, book, LevelMode::kPacked, out);
  return LevelMode::kPacked;
}

template <typename Int>
LevelSize ShorterSize(absl::Span<const Int> levels, int book) {
  std::string code;
  const LevelMode mode = AppendShorter(levels, book, &code);
  return {mode, static_cast<int64_t>(code.size())};
}

template <typename Int>
absl::Status DecodeMode(absl::string_view bytes, int book, LevelMode mode,
                        absl::Span<Int> out, size_t* consumed) {
  return WithIndexBits(book, [&](auto index_bits) {
    return mode == LevelMode::kPacked
               ? Unpack<LevelLanes<index_bits>>(bytes, out, consumed)
               : DecodeAdaptive<index_bits>(bytes, out, consumed);
  });
}

template <typename Int>
void AppendIntegersOf(absl::Span<const Int> values, int bits,
                      std::string* out) {
  RV_CHECK(bits == 4 || bits == 8) << bits;
  if (bits == 4) {
    Pack<NibbleLanes>(values, out);
  } else {
    Pack<ByteLanes>(values, out);
  }
}

template <typename Int>
absl::Status DecodeIntegersOf(absl::string_view bytes, int bits,
                              absl::Span<Int> out, size_t* consumed) {
  RV_CHECK(bits == 4 || bits == 8) << bits;
  return bits == 4 ? Unpack<NibbleLanes>(bytes, out, consumed)
                   : Unpack<ByteLanes>(bytes, out, consumed);
}

}  // namespace

int64_t PackedLevelBytes(size_t count, int book) {
  return static_cast<int64_t>(PackedBytes(count, 1 + IndexBits(book)));
}

LevelSize LevelCodeSize(absl::Span<const int8_t> levels, int book) {
  return ShorterSize(levels, book);
}
LevelSize LevelCodeSize(absl::Span<const int16_t> levels, int book) {
  return ShorterSize(levels, book);
}

LevelMode AppendLevels(absl::Span<const int8_t> levels, int book,
                       std::string* out) {
  return AppendShorter(levels, book, out);
}
LevelMode AppendLevels(absl::Span<const int16_t> levels, int book,
                       std::string* out) {
  return AppendShorter(levels, book, out);
}

void AppendLevels(absl::Span<const int8_t> levels, int book, LevelMode mode,
                  std::string* out) {
  AppendMode(levels, book, mode, out);
}
void AppendLevels(absl::Span<const int16_t> levels, int book, LevelMode mode,
                  std::string* out) {
  AppendMode(levels, book, mode, out);
}

absl::Status DecodeLevels(absl::string_view bytes, int book, LevelMode mode,
                          absl::Span<int8_t> out, size_t* consumed) {
  return DecodeMode(bytes, book, mode, out, consumed);
}
absl::Status DecodeLevels(absl::string_view bytes, int book, LevelMode mode,
                          absl::Span<int16_t> out, size_t* consumed) {
  return DecodeMode(bytes, book, mode, out, consumed);
}

void AppendIntegers(absl::Span<const int8_t> values, int bits,
                    std::string* out) {
  AppendIntegersOf(values, bits, out);
}
void AppendIntegers(absl::Span<const int16_t> values, int bits,
                    std::string* out) {
  AppendIntegersOf(values, bits, out);
}

absl::Status DecodeIntegers(absl::string_view bytes, int bits,
                            absl::Span<int8_t> out, size_t* consumed) {
  return DecodeIntegersOf(bytes, bits, out, consumed);
}
absl::Status DecodeIntegers(absl::string_view bytes, int bits,
                            absl::Span<int16_t> out, size_t* consumed) {
  return DecodeIntegersOf(bytes, bits, out, consumed);
}

}  // namespace rivulet
