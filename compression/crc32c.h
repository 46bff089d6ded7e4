// CRC32C (Castagnoli), as iSCSI, ext4 and gRPC's neighbours use it: reflected
// polynomial 0x82F63B78, initial value and final xor 0xFFFFFFFF. The CRC of
// "123456789" is 0xE3069283.

#ifndef RIVULET_COMPRESSION_CRC32C_H_
#define RIVULET_COMPRESSION_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rivulet {

// The CRC of `bytes`. Passing the CRC of a prefix as `crc` continues it:
// Crc32c(b, Crc32c(a)) == Crc32c(a + b). Thread-safe.
uint32_t Crc32c(absl::string_view bytes, uint32_t crc = 0);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_CRC32C_H_
