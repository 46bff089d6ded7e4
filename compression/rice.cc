#include "compression/rice.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace internal {

void RiceBitsAround(absl::Span<const uint32_t> positions, uint32_t base,
                    int middle, int64_t sums[3]) {
  const int lower = std::max(middle - 1, 0);
  const int upper = std::min(middle + 1, kMaxRiceParameter);
  // The gaps add up to less than 2^32, so 32 bits hold the sums of quotients.
  uint32_t quotients[3] = {0, 0, 0};
  const size_t count = positions.size();
  if (count > 0) {
    const auto add = [&](uint32_t gap) {
      quotients[0] += gap >> lower;
      quotients[1] += gap >> middle;
      quotients[2] += gap >> upper;
    };
    add(positions[0] - base);
    const uint32_t* const p = positions.data();
    size_t i = 1;
    // Constant trip counts, which compilers turn into vectors.
    constexpr size_t kBlock = 64;
    for (; i + kBlock <= count; i += kBlock) {
      uint32_t q0 = 0;
      uint32_t q1 = 0;
      uint32_t q2 = 0;
      for (size_t j = 0; j < kBlock; ++j) {
        const uint32_t gap = p[i + j] - p[i + j - 1] - 1;
        q0 += gap >> lower;
        q1 += gap >> middle;
        q2 += gap >> upper;
      }
      quotients[0] += q0;
      quotients[1] += q1;
      quotients[2] += q2;
    }
    for (; i < count; ++i) add(p[i] - p[i - 1] - 1);
  }
  for (int j = 0; j < 3; ++j) {
    sums[j] = static_cast<int64_t>(quotients[j]) +
              static_cast<int64_t>(count) * (middle + j);
  }
}

int RiceParameterGuess(uint64_t elements, uint64_t count) {
  // The best for geometric gaps is floor(log2(0.9624 mean)), where the mean
  // counts the position too (Kiely 2004, "Selecting the Golomb parameter in
  // Rice coding").
  if (count == 0) return kMaxRiceParameter;
  const uint64_t mean = elements * 77 / 80 / count;
  return std::clamp(static_cast<int>(std::bit_width(mean)) - 1, 0,
                    kMaxRiceParameter);
}

size_t MaxRiceBytes(uint64_t elements, uint64_t count, int parameter) {
  const uint64_t bits =
      count * (1 + static_cast<uint64_t>(parameter)) + (elements >> parameter);
  return static_cast<size_t>(bits / 8 + 1 + BitPacker::kSlack);
}

void PutRice(absl::Span<const uint32_t> positions, uint32_t base, int parameter,
             BitPacker* packer) {
  BitPacker p = *packer;
  const int k = parameter;
  const uint32_t mask = (uint32_t{1} << k) - 1;
  const uint32_t longest = static_cast<uint32_t>(BitPacker::kMaxBits - 1 - k);
  uint32_t next = base;
  for (const uint32_t position : positions) {
    const uint32_t gap = position - next;
    next = position + 1;
    uint32_t quotient = gap >> k;
    if (quotient > longest) [[unlikely]] {
      p.PutOnes(quotient - longest);
      quotient = longest;
    }
    const int length = static_cast<int>(quotient) + 1 + k;
    const uint64_t low = gap & mask;
    p.Put((low << 1 << quotient) + BitPacker::Ones(static_cast<int>(quotient)),
          length);
  }
  *packer = p;
}

size_t GetRice(int parameter, uint64_t begin, uint64_t end,
               absl::Span<uint32_t> out, BitReader* reader) {
  const char* const data = reader->bytes().data();
  const size_t num_bytes = reader->bytes().size();
  if (num_bytes < 8) return 0;
  const size_t last_bit = 8 * (num_bytes - 8) + 7;  // a word begins there
  const int k = parameter;
  const uint64_t mask = (uint64_t{1} << k) - 1;
  // The most ones of one code, and of two together, that a window holds.
  const int longest = BitReader::kPeekBits - (1 + k);
  const int longest_two = BitReader::kPeekBits - 2 * (1 + k);
  // A zero is put where it would be too far, so that there is one.
  const auto count_ones = [](uint64_t window) {
    return std::countr_zero(~window | uint64_t{1} << BitReader::kPeekBits);
  };
  const size_t count = out.size();
  const size_t start = reader->position();
  size_t bit = start;
  uint64_t next = begin;
  size_t i = 0;
  while (i < count && bit <= last_bit) {
    uint64_t window = LoadWord(data + bit / 8) >> (bit % 8);
    int quotient = count_ones(window);
    uint64_t gap = (static_cast<uint64_t>(quotient) << k) +
                   (window >> quotient >> 1 & mask);
    if (i + 2 <= count) [[likely]] {
      // Two codes of one window: loading is what takes longest.
      window = window >> quotient >> 1 >> k;
      const int second = count_ones(window);
      const uint64_t first_position = next + gap;
      const uint64_t position = first_position + 1 +
                                (static_cast<uint64_t>(second) << k) +
                                (window >> second >> 1 & mask);
      if (quotient + second <= longest_two && position < end) [[likely]] {
        out[i] = static_cast<uint32_t>(first_position);
        out[i + 1] = static_cast<uint32_t>(position);
        next = position + 1;
        bit += static_cast<size_t>(quotient + second + 2 * (1 + k));
        i += 2;
        continue;
      }
    }
    if (quotient > longest || next + gap >= end) break;
    out[i++] = static_cast<uint32_t>(next + gap);
    next += gap + 1;
    bit += static_cast<size_t>(quotient + 1 + k);
  }
  reader->Skip(bit - start);
  return i;
}

}  // namespace internal

RiceSize BestRice(absl::Span<const uint32_t> positions, uint32_t base) {
  if (positions.empty()) return {};
  // The size is convex in k: one more bit a gap costs count, and saves the sum
  // of ceil(quotient / 2), which falls with k. So walking downhill from a guess
  // ends in the best one, and a step that is not better says where to stop.
  int k = internal::RiceParameterGuess(positions.back() - base + uint64_t{1},
                                       positions.size());
  for (int direction = 0;;) {
    int64_t bits[3];
    internal::RiceBitsAround(positions, base, k, bits);
    const bool down = k > 0 && bits[0] <= bits[1];
    const bool up = k < kMaxRiceParameter && bits[2] < bits[1];
    if (down && direction <= 0) {
      direction = -1;
      --k;
    } else if (up && direction >= 0) {
      direction = 1;
      ++k;
    } else {
      return {k, (bits[1] + 7) / 8};
    }
  }
}

void AppendRice(absl::Span<const uint32_t> positions, uint32_t base,
                int parameter, std::string* out) {
  if (positions.empty()) return;
  const size_t start = out->size();
  out->resize(start +
              internal::MaxRiceBytes(positions.back() - base + uint64_t{1},
                                     positions.size(), parameter));
  BitPacker packer(out->data() + start);
  internal::PutRice(positions, base, parameter, &packer);
  out->resize(static_cast<size_t>(packer.Finish() - out->data()));
}

namespace {

absl::Status CheckRiceCount(absl::string_view bytes, uint64_t count,
                            int parameter, int64_t size) {
  if (count > static_cast<uint64_t>(size)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%u positions announced in a segment of %d elements", count, size));
  }
  // A position takes at least 1 + k bits, so a forged count allocates little.
  const uint64_t room =
      bytes.size() * uint64_t{8} / (1 + static_cast<uint64_t>(parameter));
  if (count > room) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%u positions announced, at most %u fit into %u bytes",
                        count, room, bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeRice(absl::string_view bytes, int parameter, int64_t size,
                        absl::Span<uint32_t> out, size_t* consumed) {
  RV_RETURN_IF_ERROR(CheckRiceCount(bytes, out.size(), parameter, size));
  BitReader reader(bytes);
  const uint64_t end = static_cast<uint64_t>(size);
  const uint32_t limit = static_cast<uint32_t>(end >> parameter);
  uint64_t next = 0;
  for (size_t i = 0; i < out.size();) {
    const size_t decoded =
        internal::GetRice(parameter, next, end, out.subspan(i), &reader);
    i += decoded;
    if (decoded > 0) next = uint64_t{out[i - 1]} + 1;
    if (i == out.size()) break;
    uint32_t quotient = 0;
    uint32_t low = 0;
    if (!reader.ReadUnary(limit, &quotient) || !reader.Read(parameter, &low)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "position %u of %u is cut off or its gap exceeds %d elements", i,
          out.size(), size));
    }
    const uint64_t position =
        next + ((static_cast<uint64_t>(quotient) << parameter) | low);
    if (position >= end) {
      return absl::OutOfRangeError(absl::StrFormat(
          "position %u in a segment of %d elements", position, size));
    }
    out[i++] = static_cast<uint32_t>(position);
    next = position + 1;
  }
  if (!reader.Finish(consumed)) {
    return absl::InvalidArgumentError(
        "padding after the positions is not zero");
  }
  return absl::OkStatus();
}

absl::Status DecodeRice(absl::string_view bytes, uint64_t count, int parameter,
                        int64_t size, std::vector<uint32_t>* positions,
                        size_t* consumed) {
  positions->clear();
  RV_RETURN_IF_ERROR(CheckRiceCount(bytes, count, parameter, size));
  positions->resize(count);
  return DecodeRice(bytes, parameter, size, absl::MakeSpan(*positions),
                    consumed);
}

}  // namespace rivulet
