#include "common/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace rivulet {

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  // ISA-L leaves the inversion before and after to its caller, takes its
  // length as an int, and its buffer as non-const though it only reads it.
  constexpr size_t kMaxChunk = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t chunk = std::min(bytes.size(), kMaxChunk);
    auto* data = const_cast<unsigned char*>(
        reinterpret_cast<const unsigned char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(chunk), state);
    bytes.remove_prefix(chunk);
  }
  return ~state;
}

uint32_t Crc32c(absl::string_view bytes) { return ExtendCrc32c(0, bytes); }

uint32_t MaskedCrc32c(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace rivulet
