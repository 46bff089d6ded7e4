#include "compression/rice.h"

#include <bit>

#include "absl/strings/str_format.h"
#include "compression/bit_io.h"

namespace rivulet {
namespace {

// Calls f(gap) for each gap of positions - base.
template <typename F>
void ForEachGap(absl::Span<const uint32_t> positions, uint32_t base, F f) {
  uint32_t next = base;
  for (const uint32_t p : positions) {
    f(p - next);
    next = p + 1;
  }
}

int64_t RiceBits(absl::Span<const uint32_t> positions, uint32_t base, int k) {
  uint64_t quotients = 0;
  ForEachGap(positions, base, [&](uint32_t gap) { quotients += gap >> k; });
  return static_cast<int64_t>(quotients + positions.size() * (1 + k));
}

}  // namespace

RiceSize BestRice(absl::Span<const uint32_t> positions, uint32_t base) {
  if (positions.empty()) return {};
  // The size is convex in k: one more bit a gap costs count, and saves the sum
  // of ceil(quotient / 2), which falls with k. So walking downhill from a guess
  // ends in the best one.
  const uint64_t mean =
      (positions.back() - base + uint64_t{1}) / positions.size();
  int k = mean <= 1 ? 0 : static_cast<int>(std::bit_width(mean)) - 1;
  int64_t best = RiceBits(positions, base, k);
  for (int64_t next; k < kMaxRiceParameter; ++k, best = next) {
    next = RiceBits(positions, base, k + 1);
    if (next >= best) break;
  }
  for (int64_t next; k > 0; --k, best = next) {
    next = RiceBits(positions, base, k - 1);
    if (next > best) break;
  }
  return {k, (best + 7) / 8};
}

void AppendRice(absl::Span<const uint32_t> positions, uint32_t base,
                int parameter, std::string* out) {
  BitWriter writer(out);
  const uint32_t mask = (uint32_t{1} << parameter) - 1;
  ForEachGap(positions, base, [&](uint32_t gap) {
    writer.WriteUnary(gap >> parameter);
    writer.Write(gap & mask, parameter);
  });
  writer.Finish();
}

absl::Status DecodeRice(absl::string_view bytes, uint64_t count, int parameter,
                        int64_t size, std::vector<uint32_t>* positions,
                        size_t* consumed) {
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
  positions->clear();
  positions->reserve(count);
  BitReader reader(bytes);
  uint64_t next = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t quotient = 0;
    uint32_t low = 0;
    const uint32_t limit =
        static_cast<uint32_t>(static_cast<uint64_t>(size) >> parameter);
    if (!reader.ReadUnary(limit, &quotient) || !reader.Read(parameter, &low)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "position %u of %u is cut off or its gap exceeds %d elements", i,
          count, size));
    }
    const uint64_t position =
        next + ((static_cast<uint64_t>(quotient) << parameter) | low);
    if (position >= static_cast<uint64_t>(size)) {
      return absl::OutOfRangeError(absl::StrFormat(
          "position %u in a segment of %d elements", position, size));
    }
    positions->push_back(static_cast<uint32_t>(position));
    next = position + 1;
  }
  if (!reader.Finish(consumed)) {
    return absl::InvalidArgumentError(
        "padding after the positions is not zero");
  }
  return absl::OkStatus();
}

}  // namespace rivulet
