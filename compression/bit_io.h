// Bits and bytes of the frame format: little-endian numbers, variable-length
// integers, and bit strings that fill each byte from its lowest bit up.
//
// Writers append to a string and cannot fail. Readers never look past their
// input: each read returns false, and consumes nothing that matters, when the
// input is too short or malformed. All are thread-compatible.

#ifndef RIVULET_COMPRESSION_BIT_IO_H_
#define RIVULET_COMPRESSION_BIT_IO_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace rivulet {

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

// Reads what BitWriter wrote from borrowed bytes.
class BitReader {
 public:
  explicit BitReader(absl::string_view bytes) : bytes_(bytes) {}

  bool Read(int num_bits, uint32_t* value) {
    if (filled_ < num_bits) Refill();
    if (filled_ < num_bits) return false;
    *value = static_cast<uint32_t>(window_ & ((uint64_t{1} << num_bits) - 1));
    Drop(num_bits);
    return true;
  }

  // The number of ones before the next zero, which is consumed too. False when
  // the input ends first, or when there are more than `limit` ones.
  bool ReadUnary(uint32_t limit, uint32_t* count) {
    uint64_t ones = 0;
    while (ones <= limit) {
      if (filled_ == 0) Refill();
      if (filled_ == 0) return false;
      const int run = std::min(std::countr_one(window_), filled_);
      ones += static_cast<uint64_t>(run);
      if (run < filled_) {
        if (ones > limit) return false;
        Drop(run + 1);
        *count = static_cast<uint32_t>(ones);
        return true;
      }
      Drop(run);
    }
    return false;
  }

  // Bytes begun so far. False when a bit of the last one that was not read is
  // set: padding is zero.
  bool Finish(size_t* num_bytes) const {
    const int padding = filled_ % 8;
    *num_bytes = next_ - static_cast<size_t>(filled_ / 8);
    return (window_ & ((uint64_t{1} << padding) - 1)) == 0;
  }

 private:
  void Refill() {
    while (filled_ <= 56 && next_ < bytes_.size()) {
      window_ |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[next_++]))
                 << filled_;
      filled_ += 8;
    }
  }
  // `num_bits` is at most filled_, and 64 only when the window is full.
  void Drop(int num_bits) {
    window_ = num_bits == 64 ? 0 : window_ >> num_bits;
    filled_ -= num_bits;
  }

  absl::string_view bytes_;
  size_t next_ = 0;      // first byte that is not in the window
  uint64_t window_ = 0;  // unread bits, lowest first; zero above filled_
  int filled_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_BIT_IO_H_
