#include "compression/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace rivulet {

uint32_t Crc32c(absl::string_view bytes, uint32_t crc) {
  // The library takes an int of length and a pointer that it does not write to,
  // and leaves both inversions to its caller.
  constexpr size_t kMaxPiece = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), kMaxPiece);
    state =
        crc32_iscsi(const_cast<unsigned char*>(
                        reinterpret_cast<const unsigned char*>(bytes.data())),
                    static_cast<int>(piece), state);
    bytes.remove_prefix(piece);
  }
  return ~state;
}

}  // namespace rivulet
