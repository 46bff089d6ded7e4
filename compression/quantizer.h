// Values to levels: symmetric uniform quantization to 8 or 16 bits, or raw
// 32-bit floats.
//
// With L = 2^(bits-1) - 1 and M the largest magnitude of a group, step is M / L
// rounded up to 8 significant bits (bfloat16, so that it travels in two bytes),
// level = v / step to the nearest integer, ties to even, in [-L, L], and the
// decoded value is float(level) * step at both ends. So
// |v - decoded| <= step / 2, step <= M / L * (1 + 2^-7), and a level never
// exceeds L. A group of zeros has step 0. Magnitudes too small for a normal
// bfloat16 (below about 1e-36) get a coarser step, at least 2^-133, and those
// near the largest float a step that keeps L * step finite.
//
// The groups are: all sent values of a sparse tensor, or each
// kQuantizationBlock elements of a dense one, counted from the tensor's start.
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_QUANTIZER_H_
#define RIVULET_COMPRESSION_QUANTIZER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compression/compressed_tensor.h"

namespace rivulet {

// 8, 16 or 32.
bool IsValueBits(int bits);

// 2^(bits-1) - 1 for 8 or 16 bits.
int32_t MaxLevel(int bits);

// Step sizes are bfloat16 numbers: these are the two bytes of one that is
// exactly representable, and back.
uint16_t StepToBits(float step);
float StepFromBits(uint16_t bits);

// The step of a group whose largest magnitude is `max_magnitude` (finite, not
// negative).
float QuantizationStep(float max_magnitude, int bits);

// All of `values` (finite). *out is overwritten.
void QuantizeDense(absl::Span<const float> values, int bits,
                   CompressedTensor* out);

// The elements at `positions` (strictly increasing, in range) of `values`.
// Positions whose level comes out 0 are dropped: they would carry nothing, and
// stay in the sender's residual. *out is overwritten.
void QuantizeSparse(absl::Span<const float> values,
                    std::vector<uint32_t> positions, int bits,
                    CompressedTensor* out);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_QUANTIZER_H_
