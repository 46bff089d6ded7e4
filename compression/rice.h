// Rice coding of positions (Rice 1979; Golomb's code with a power of two): a
// strictly increasing list becomes gaps g_0 = p_0, g_i = p_i - p_{i-1} - 1, and
// a gap is (g >> k) ones, a zero, and the k low bits of g. For random positions
// at densities of 0.1 to 5 % this is within 1 % of the entropy.
//
// Coding a position takes some 6 cycles and decoding it some 12: windows of 64
// bits, two codes of a window at a time, and no branch that depends on a gap
// unless its code is long or near the end of the input.
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_RICE_H_
#define RIVULET_COMPRESSION_RICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compression/bit_io.h"

namespace rivulet {

inline constexpr int kMaxRiceParameter = 31;

struct RiceSize {
  int parameter = 0;      // the k that makes the code shortest
  int64_t num_bytes = 0;  // of the code, padded to a byte
};

// The best parameter (the smallest of equals) for positions - base, by exact
// size. One pass over the positions where their gaps are about geometric.
RiceSize BestRice(absl::Span<const uint32_t> positions, uint32_t base);

// Appends the code of positions - base, padded with zero bits to a byte.
// Positions are strictly increasing and not below base.
void AppendRice(absl::Span<const uint32_t> positions, uint32_t base,
                int parameter, std::string* out);

// Decodes out.size() positions below `size` (at most 2^32 - 1) from the front
// of `bytes` into `out`; *consumed is the number of bytes used. InvalidArgument
// when the bytes end first or have no room for so many, when there are more
// positions than elements, or when the padding is not zero; OutOfRange when a
// position is not below `size`. After an error `out` holds anything.
absl::Status DecodeRice(absl::string_view bytes, int parameter, int64_t size,
                        absl::Span<uint32_t> out, size_t* consumed);

// The same for `count` positions into a vector of its own. Allocates only for a
// count that `bytes` has room for.
absl::Status DecodeRice(absl::string_view bytes, uint64_t count, int parameter,
                        int64_t size, std::vector<uint32_t>* positions,
                        size_t* consumed);

namespace internal {

// Parts of a longer bit string, for codes that are made of several lists.

// Bits of the code of positions - base with the parameter `middle`, one less
// and one more: sums[1], sums[0], sums[2]. Parameters are 0 to
// kMaxRiceParameter; an entry for another one holds anything.
void RiceBitsAround(absl::Span<const uint32_t> positions, uint32_t base,
                    int middle, int64_t sums[3]);

// A parameter near the best for `count` random positions among `elements`.
int RiceParameterGuess(uint64_t elements, uint64_t count);

// What a code takes at most, in bytes, with BitPacker's slack: `count`
// positions below `elements`.
size_t MaxRiceBytes(uint64_t elements, uint64_t count, int parameter);

// Writes the code of positions - base.
void PutRice(absl::Span<const uint32_t> positions, uint32_t base, int parameter,
             BitPacker* packer);

// Decodes positions of [begin, end) into `out` until it is full. Stops before
// the first code that is no position of the range, that is cut off, or that is
// more than 57 bits long or near the end of the input: whoever calls reads that
// one bit by bit, finds what is wrong with it, and goes on. Returns how many
// were decoded.
size_t GetRice(int parameter, uint64_t begin, uint64_t end,
               absl::Span<uint32_t> out, BitReader* reader);

}  // namespace internal
}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_RICE_H_
