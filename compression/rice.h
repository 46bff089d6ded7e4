// Rice coding of positions (Rice 1979; Golomb's code with a power of two): a
// strictly increasing list becomes gaps g_0 = p_0, g_i = p_i - p_{i-1} - 1, and
// a gap is (g >> k) ones, a zero, and the k low bits of g. For random positions
// at densities of 0.1 to 5 % this is within 1 % of the entropy.
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

namespace rivulet {

inline constexpr int kMaxRiceParameter = 31;

struct RiceSize {
  int parameter = 0;      // the k that makes the code shortest
  int64_t num_bytes = 0;  // of the code, padded to a byte
};

// The best parameter (the smallest of equals) for positions - base, by exact
// size.
RiceSize BestRice(absl::Span<const uint32_t> positions, uint32_t base);

// Appends the code of positions - base, padded with zero bits to a byte.
void AppendRice(absl::Span<const uint32_t> positions, uint32_t base,
                int parameter, std::string* out);

// Decodes `count` positions below `size` from the front of `bytes`;
// *consumed is the number of bytes used. InvalidArgument when the bytes end
// first or the padding is not zero, OutOfRange when a position is not below
// `size`. Allocates only for a count that `bytes` has room for.
absl::Status DecodeRice(absl::string_view bytes, uint64_t count, int parameter,
                        int64_t size, std::vector<uint32_t>* positions,
                        size_t* consumed);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_RICE_H_
