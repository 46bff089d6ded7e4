// Bits and bytes of the frame format: little-endian numbers, variable-length
// integers, and bit strings that fill each byte from its lowest bit up.
//
// Writers append to a string, or fill memory of a known size, and cannot fail.
// Readers never look past their input: each read returns false, and consumes
// nothing that matters, when the input is too short or malformed. All are
// thread-compatible.

#ifndef RIVULET_COMPRESSION_BIT_IO_H_
#define RIVULET_COMPRESSION_BIT_IO_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace rivulet {

// The eight bytes at `bytes` as a number, lowest first, and back; unaligned.
inline uint64_t LoadWord(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  if constexpr (std::endian::native == std::endian::big) {
    word = __builtin_bswap64(word);
  }
  return word;
}
inline void StoreWord(uint64_t word, char* bytes) {
  if constexpr (std::endian::native == std::endian::big) {
    word = __builtin_bswap64(word);
  }
  std::memcpy(bytes, &word, sizeof(word));
}

// Appends the low `num_bytes` bytes of `value`, lowest first.
inline void AppendLittleEndian(uint32_t value, int num_bytes,
                               std::string* out) {
  for (int i = 0; i < num_bytes; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

// Base-128 integers: seven bits a byte, lowest first, the high bit set on all
// bytes but the last.
inline int VarintLength(uint64_t value) {
  return std::max(1, (static_cast<int>(std::bit_width(value)) + 6) / 7);
}
inline void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

// Maps small signed numbers to small unsigned ones: 0, -1, 1, -2, ...
inline uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^
         static_cast<uint64_t>(value >> 63);
}
inline int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

// Takes numbers off the front of borrowed bytes.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : bytes_(bytes) {}

  size_t remaining() const { return bytes_.size(); }
  absl::string_view rest() const { return bytes_; }

  bool ReadByte(uint8_t* value) {
    if (bytes_.empty()) return false;
    *value = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return true;
  }

  bool ReadBytes(uint64_t count, absl::string_view* value) {
    if (count > bytes_.size()) return false;
    *value = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return true;
  }

  bool Skip(uint64_t count) {
    absl::string_view skipped;
    return ReadBytes(count, &skipped);
  }

  // Also false for more than 63 bits, and for an encoding that is longer than
  // it need be: each number has one form.
  bool ReadVarint(uint64_t* value) {
    uint64_t result = 0;
    for (size_t i = 0; i < 9 && i < bytes_.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(bytes_[i]);
      result |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (byte & 0x80) continue;
      if (byte == 0 && i > 0) return false;
      bytes_.remove_prefix(i + 1);
      *value = result;
      return true;
    }
    return false;
  }

 private:
  absl::string_view bytes_;
};

// The number in `bytes` at `offset`; the caller knows that it lies within.
inline uint32_t LoadLittleEndian(absl::string_view bytes, size_t offset,
                                 int num_bytes) {
  uint32_t value = 0;
  for (int i = 0; i < num_bytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[offset + i]))
             << (8 * i);
  }
  return value;
}

// Appends bits; Finish() pads the last byte with zeros.
class BitWriter {
 public:
  explicit BitWriter(std::string* out) : out_(out) {}

  // The low `num_bits` (0 to 32) bits of `value`; higher bits must be zero.
  void Write(uint32_t value, int num_bits) {
    window_ |= static_cast<uint64_t>(value) << filled_;
    filled_ += num_bits;
    while (filled_ >= 8) {
      out_->push_back(static_cast<char>(window_));
      window_ >>= 8;
      filled_ -= 8;
    }
  }

  // `count` ones and a zero.
  void WriteUnary(uint32_t count) {
    for (; count >= 31; count -= 31) Write(0x7FFFFFFFu, 31);
    Write((1u << count) - 1, static_cast<int>(count) + 1);
  }

  void Finish() {
    if (filled_ > 0) Write(0, 8 - filled_);
  }

 private:
  std::string* const out_;
  uint64_t window_ = 0;
  int filled_ = 0;  // bits in window_, below 8 between calls
};

// What BitWriter does, at several times its speed, into borrowed memory: of
// what is written, and kSlack bytes more, which hold anything afterwards. Copy
// it to a local variable around a hot loop, so that it stays in registers.
class BitPacker {
 public:
  static constexpr size_t kSlack = 8;
  static constexpr int kMaxBits = 56;  // of one Put

  explicit BitPacker(char* out) : out_(out) {}

  // The low `num_bits` (0 to kMaxBits) bits of `value`; higher bits must be
  // zero.
  void Put(uint64_t value, int num_bits) {
    window_ |= value << filled_;
    StoreWord(window_, out_);
    filled_ += num_bits;
    out_ += filled_ >> 3;
    window_ >>= filled_ & ~7;
    filled_ &= 7;
  }

  // `count` ones, without the zero that ends a unary number.
  void PutOnes(uint64_t count) {
    for (; count > kMaxBits; count -= kMaxBits) Put(Ones(kMaxBits), kMaxBits);
    Put(Ones(static_cast<int>(count)), static_cast<int>(count));
  }

  // Pads the last byte with zeros; the end of what was written.
  char* Finish() {
    if (filled_ > 0) Put(0, 8 - filled_);
    return out_;
  }

  // `count` (0 to 63) ones, from bit 0 up.
  static uint64_t Ones(int count) { return (uint64_t{1} << count) - 1; }

 private:
  char* out_;
  uint64_t window_ = 0;
  int filled_ = 0;  // bits in window_, below 8 between calls
};

// Reads what BitWriter or BitPacker wrote from borrowed bytes.
class BitReader {
 public:
  // Bits of Peek() that are the input's, where as many are left.
  static constexpr int kPeekBits = 57;

  explicit BitReader(absl::string_view bytes) : bytes_(bytes) {}

  absl::string_view bytes() const { return bytes_; }
  // Bits read so far, and those that are left.
  size_t position() const { return bit_; }
  size_t remaining() const { return 8 * bytes_.size() - bit_; }
  // Skips what the caller knows to be there.
  void Skip(size_t num_bits) { bit_ += num_bits; }

  // The next bits, lowest first; zeros beyond the end.
  uint64_t Peek() const {
    const size_t at = bit_ / 8;
    if (at + 8 <= bytes_.size()) {
      return LoadWord(bytes_.data() + at) >> (bit_ % 8);
    }
    uint64_t word = 0;
    for (size_t i = at; i < bytes_.size(); ++i) {
      word |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[i]))
              << (8 * (i - at));
    }
    return word >> (bit_ % 8);
  }

  bool Read(int num_bits, uint32_t* value) {
    if (remaining() < static_cast<size_t>(num_bits)) return false;
    *value = static_cast<uint32_t>(Peek() & ((uint64_t{1} << num_bits) - 1));
    bit_ += static_cast<size_t>(num_bits);
    return true;
  }

  // The number of ones before the next zero, which is consumed too. False when
  // the input ends first, or when there are more than `limit` ones.
  bool ReadUnary(uint32_t limit, uint32_t* count) {
    uint64_t ones = 0;
    while (ones <= limit) {
      const int valid =
          static_cast<int>(std::min<size_t>(remaining(), kPeekBits));
      if (valid == 0) return false;
      const int run = std::min(std::countr_one(Peek()), valid);
      ones += static_cast<uint64_t>(run);
      bit_ += static_cast<size_t>(run);
      if (run < valid) {
        if (ones > limit) return false;
        ++bit_;
        *count = static_cast<uint32_t>(ones);
        return true;
      }
    }
    return false;
  }

  // The number of ones before the next zero, which is consumed too; after
  // `limit` ones, that, and whatever follows is left. False when the input ends
  // first.
  bool ReadTruncatedUnary(uint64_t limit, uint64_t* count) {
    for (*count = 0; *count < limit;) {
      const int valid =
          static_cast<int>(std::min<size_t>(remaining(), kPeekBits));
      if (valid == 0) return false;
      const int run = std::min(std::countr_one(Peek()), valid);
      if (static_cast<uint64_t>(run) >= limit - *count) {
        bit_ += limit - *count;
        *count = limit;
        return true;
      }
      *count += static_cast<uint64_t>(run);
      bit_ += static_cast<size_t>(run);
      if (run < valid) {
        ++bit_;
        return true;
      }
    }
    return true;
  }

  // Bytes begun so far. False when a bit of the last one that was not read is
  // set: padding is zero.
  bool Finish(size_t* num_bytes) const {
    *num_bytes = (bit_ + 7) / 8;
    const int padding = static_cast<int>(8 * *num_bytes - bit_);
    return (Peek() & ((uint64_t{1} << padding) - 1)) == 0;
  }

 private:
  absl::string_view bytes_;
  size_t bit_ = 0;  // of the bytes, the next to be read
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_BIT_IO_H_
