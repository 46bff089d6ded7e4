// Numbers of the frame format that encoder and decoder share; README.md of this
// folder tells what they mean. Internal to frame_encoder.cc and
// frame_decoder.cc.

#ifndef RIVULET_COMPRESSION_FRAME_FORMAT_H_
#define RIVULET_COMPRESSION_FRAME_FORMAT_H_

#include <cstdint>

namespace rivulet::internal {

// The layout byte of a segment: bits 0-1 say how wide a value is, bits 2-7 how
// positions are given.
inline constexpr uint8_t kValues8 = 0;
inline constexpr uint8_t kValues16 = 1;
inline constexpr uint8_t kValues32 = 2;

inline constexpr uint8_t kRiceFirst = 0;  // 0 to 31: Rice code, this parameter
inline constexpr uint8_t kRiceLast = 31;
inline constexpr uint8_t kBitmap = 32;
inline constexpr uint8_t kDense = 33;
inline constexpr uint8_t kReplaceAll = 34;

inline constexpr int kStepBytes = 2;
inline constexpr int kCrcBytes = 4;

}  // namespace rivulet::internal

#endif  // RIVULET_COMPRESSION_FRAME_FORMAT_H_
