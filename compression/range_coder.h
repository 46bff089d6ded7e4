// A binary adaptive range coder (Martin 1979; in the form of Schindler's and
// LZMA's): codes bits in about -log2 of the probability that an adaptive model
// gave them.
//
//   std::vector<AdaptiveBit> model(8);        // both ends begin with the same
//   RangeEncoder encoder(&bytes);
//   encoder.EncodeBit(&model[context], bit);
//   encoder.Finish();
//
//   RangeDecoder decoder(bytes);
//   bit = decoder.DecodeBit(&model[context]);
//   RV_RETURN_IF_ERROR(decoder.Finish(&consumed));
//
// The code is one number, the most significant byte first. An interval [low,
// low + range) of 64-bit numbers begins as all of them. A bit divides it at
// (range >> 16) * p, p the probability of a one in 1/65536: a one takes the
// lower part. A raw field of n bits divides it in 2^n parts of range >> n. When
// range falls below 2^32 four bytes leave at the top. At the end come the
// fewest bytes that name a number of the interval whatever follows them,
// counted by range alone: none while nothing was coded, otherwise b, the
// smallest with range >= 2^(65 - 8 b). So a decoder knows where the code ends,
// and it is at most 10 bits longer than the sum of what its symbols cost.
//
// All of it is integer arithmetic: the same bytes everywhere.

#ifndef RIVULET_COMPRESSION_RANGE_CODER_H_
#define RIVULET_COMPRESSION_RANGE_CODER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace rivulet {

namespace internal {

// Steps of AdaptiveBit: 1/(n + 2) in 1/65536, as Krichevsky and Trofimov
// estimate, down to 1/1024.
inline constexpr size_t kAdaptiveSteps = 1023;
inline constexpr std::array<uint16_t, kAdaptiveSteps> kAdaptiveStep = [] {
  std::array<uint16_t, kAdaptiveSteps> steps{};
  for (size_t n = 0; n < kAdaptiveSteps; ++n) {
    steps[n] = static_cast<uint16_t>(65536 / (n + 2));
  }
  return steps;
}();

inline constexpr uint64_t kFullRange = ~uint64_t{0};
inline constexpr uint64_t kMinRange = uint64_t{1} << 32;

// Bytes that end a code whose last interval has `range` numbers.
inline int RangeTailBytes(uint64_t range) {
  if (range == kFullRange) return 0;
  const int log2_range = static_cast<int>(std::bit_width(range)) - 1;
  return (65 - log2_range + 7) / 8;
}

}  // namespace internal

// The probability of a one in one context: the mean of what was seen, over the
// last thousand bits or so. Costs of a bit lie between 0.0004 and 12 bits. A
// plain value.
class AdaptiveBit {
 public:
  // In 1/65536, within [16, 65520].
  uint32_t probability() const {
    return std::clamp<uint32_t>(mean_ >> 6, 16, 65536 - 16);
  }
  void Update(bool bit) {
    const int64_t target = bit ? int64_t{1} << 22 : 0;
    const int64_t step = internal::kAdaptiveStep[seen_];
    // Rounds down; a step below 1 keeps the mean within [0, 2^22).
    mean_ = static_cast<uint32_t>(
        mean_ + ((target - static_cast<int64_t>(mean_)) * step >> 16));
    seen_ += seen_ + 1 < internal::kAdaptiveSteps ? 1 : 0;
  }

 private:
  uint32_t mean_ = 1u << 21;  // in 2^-22
  uint32_t seen_ = 0;
};

// Appends a code to a borrowed string; nothing else is appended meanwhile.
// Thread-compatible.
class RangeEncoder {
 public:
  explicit RangeEncoder(std::string* out) : out_(out) {}

  // Codes `bit` by *model, and updates that.
  void EncodeBit(AdaptiveBit* model, bool bit) {
    const uint64_t bound = (range_ >> 16) * model->probability();
    Narrow(bit ? 0 : bound, bit ? bound : range_ - bound);
    model->Update(bit);
  }

  // The low `num_bits` (0 to 16) bits of `value`, at their full length; higher
  // bits must be zero.
  void EncodeRaw(uint32_t value, int num_bits) {
    const uint64_t part = range_ >> num_bits;
    Narrow(value * part, part);
  }

  // Ends the code. The encoder is done.
  void Finish() {
    const int num_bytes = internal::RangeTailBytes(range_);
    if (num_bytes == 0) return;
    const uint64_t unit = uint64_t{1} << (64 - 8 * num_bytes);
    const uint64_t value = (low_ + unit - 1) & ~(unit - 1);
    if (value < low_) Carry();
    for (int i = 0; i < num_bytes; ++i) {
      out_->push_back(static_cast<char>(value >> (56 - 8 * i)));
    }
  }

 private:
  void Narrow(uint64_t offset, uint64_t range) {
    low_ += offset;
    if (low_ < offset) Carry();
    range_ = range;
    if (range_ < internal::kMinRange) {
      const char top[4] = {
          static_cast<char>(low_ >> 56), static_cast<char>(low_ >> 48),
          static_cast<char>(low_ >> 40), static_cast<char>(low_ >> 32)};
      out_->append(top, sizeof(top));
      low_ <<= 32;
      range_ <<= 32;
    }
  }

  // Adds one to the bytes that have left. The whole code is below 1, so a carry
  // ends among them.
  void Carry() {
    for (size_t i = out_->size(); i-- > 0;) {
      char& byte = (*out_)[i];
      byte = static_cast<char>(static_cast<uint8_t>(byte) + 1);
      if (byte != 0) return;
    }
  }

  std::string* const out_;
  uint64_t low_ = 0;
  uint64_t range_ = internal::kFullRange;
};

// Decodes what RangeEncoder wrote at the front of borrowed bytes, which other
// bytes may follow. Never reads beyond them: past their end it decodes zeros,
// and Finish says so. Each call takes constant time; callers decode no more
// symbols than they would for any input of that length, or ask ran_out().
// Thread-compatible.
class RangeDecoder {
 public:
  explicit RangeDecoder(absl::string_view bytes) : bytes_(bytes) {
    code_ = uint64_t{NextFour()} << 32;
    code_ |= NextFour();
  }

  bool DecodeBit(AdaptiveBit* model) {
    const uint64_t bound = (range_ >> 16) * model->probability();
    const bool bit = code_ < bound;
    Narrow(bit ? 0 : bound, bit ? bound : range_ - bound);
    model->Update(bit);
    return bit;
  }

  // `num_bits` is 0 to 16.
  uint32_t DecodeRaw(int num_bits) {
    const uint64_t part = range_ >> num_bits;
    const uint64_t value =
        std::min(code_ / part, (uint64_t{1} << num_bits) - 1);
    Narrow(value * part, part);
    return static_cast<uint32_t>(value);
  }

  // Bytes of the code, if it ended here.
  size_t consumed() const {
    return next_ - 8 + static_cast<size_t>(internal::RangeTailBytes(range_));
  }
  // Whether what was decoded needs more bytes than there are.
  bool ran_out() const { return consumed() > bytes_.size(); }

  // InvalidArgument when the bytes ended before the code did, or are no code at
  // all; otherwise the number of its bytes.
  absl::Status Finish(size_t* num_bytes) const {
    if (ran_out()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("range code of %u bytes or more is cut off after %u",
                          consumed(), bytes_.size()));
    }
    if (code_ >= range_ && consumed() > 0) {
      return absl::InvalidArgumentError("no range code: beyond its interval");
    }
    *num_bytes = consumed();
    return absl::OkStatus();
  }

 private:
  void Narrow(uint64_t offset, uint64_t range) {
    code_ -= offset;
    range_ = range;
    if (range_ < internal::kMinRange) {
      code_ = code_ << 32 | NextFour();
      range_ <<= 32;
    }
  }

  uint32_t NextFour() {
    uint32_t value = 0;
    if (next_ + 4 <= bytes_.size()) {
      for (size_t i = 0; i < 4; ++i) value = value << 8 | Byte(next_ + i);
    } else {
      for (size_t i = 0; i < 4; ++i) {
        value = value << 8 | (next_ + i < bytes_.size() ? Byte(next_ + i) : 0);
      }
    }
    next_ += 4;
    return value;
  }
  uint32_t Byte(size_t at) const { return static_cast<uint8_t>(bytes_[at]); }

  absl::string_view bytes_;
  size_t next_ = 0;    // byte to be read next; counts on beyond the end
  uint64_t code_ = 0;  // the number less the interval's low end
  uint64_t range_ = internal::kFullRange;
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_RANGE_CODER_H_
