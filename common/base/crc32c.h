// CRC32C (Castagnoli, reflected polynomial 0x82F63B78): the checksum of frames
// and of checkpoints' tensors, as iSCSI (RFC 3720, appendix B.4) defines it.
//
//   const uint32_t crc = Crc32c(bytes);
//   Crc32c(a + b) == ExtendCrc32c(Crc32c(a), b)
//
// Pure functions; the checksum of no bytes is 0.

#ifndef RIVULET_COMMON_BASE_CRC32C_H_
#define RIVULET_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rivulet {

uint32_t Crc32c(absl::string_view bytes);

// The checksum of (what `crc` is the checksum of) followed by `bytes`.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

// The checksum of `bytes` in the form in which it is stored behind them.
// Bytes that end in their own plain CRC have one and the same CRC32C whatever
// they hold, so a checksum over such bytes could not tell two of them apart.
// The mask, rotate right by 15 and add 0xa282ead8, is LevelDB's
// (doc/log_format.md).
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_CRC32C_H_
