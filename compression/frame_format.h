// Numbers of the frame format that encoder and decoder share; README.md of this
// folder tells what they mean. Internal to frame_encoder.cc and
// frame_decoder.cc.

#ifndef RIVULET_COMPRESSION_FRAME_FORMAT_H_
#define RIVULET_COMPRESSION_FRAME_FORMAT_H_

#include <cstdint>

namespace rivulet::internal {

// The form byte of a block: bits 0-2 say what a value is, bits 3-5 where the
// values go.
enum Values : uint8_t {
  kValuesFloat = 0,
  kValuesLinear16 = 1,
  kValuesLinear8 = 2,
  kValuesLinear4 = 3,
  kValuesBook1 = 4,  // books of 1, 2, 4, 8 magnitudes
  kValuesBook2 = 5,
  kValuesBook4 = 6,
  kValuesBook8 = 7,
};
enum Places : uint8_t {
  kPlacesRice = 0,
  kPlacesBitmap = 1,
  kPlacesAll = 2,
  kPlacesReplace = 3,
};
inline constexpr uint8_t kPlacesShift = 3;
inline constexpr uint8_t kGroup = 1 << 6;     // of several segments
inline constexpr uint8_t kAdaptive = 1 << 7;  // the levels' code

inline constexpr int kStepBytes = 2;
inline constexpr int kCrcBytes = 4;

inline constexpr bool IsBook(uint8_t values) { return values >= kValuesBook1; }
inline constexpr int BookSize(uint8_t values) {
  return 1 << (values - kValuesBook1);
}
inline constexpr bool IsLinear(uint8_t values) {
  return values >= kValuesLinear16 && values <= kValuesLinear4;
}
// Bits of a symbol where they are not adaptive.
inline constexpr int SymbolBits(uint8_t values) {
  switch (values) {
    case kValuesFloat:
      return 32;
    case kValuesLinear16:
      return 16;
    case kValuesLinear8:
      return 8;
    case kValuesLinear4:
      return 4;
    default:
      return 1 + (values - kValuesBook1);
  }
}

}  // namespace rivulet::internal

#endif  // RIVULET_COMPRESSION_FRAME_FORMAT_H_
