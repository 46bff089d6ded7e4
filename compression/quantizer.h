// Values to symbols: (values, plan) -> levels and what the decoder needs.
//
// Raw (32 bits): the fp32 values.
//
// Linear (16 and 8 bits; a tensor that is sent whole also 4): symmetric uniform
// levels. With L = 2^(bits-1) - 1 and M the largest magnitude of a group, step
// is M / L rounded up to 8 significant bits (bfloat16, so that it travels in
// two bytes), level = v / step to the nearest integer, ties to even, in [-L,
// L], and the decoded value is float(level) * step at both ends. So |v -
// decoded| <= step / 2, step <= M / L * (1 + 2^-7), and a level never exceeds
// L. A group of zeros has step 0. Magnitudes too small for a normal bfloat16
// (below about 1e-36) get a coarser step, at least 2^-133, and those near the
// largest float a step that keeps L * step finite. The groups are: all sent
// values of a sparse tensor, or each kQuantizationBlock elements of a dense
// one, counted from the tensor's start.
//
// Book (1 to 4 bits, sparse tensors): a sign and one of up to 2^(bits-1)
// magnitudes, bfloat16 numbers that travel with the tensor. 1 bit is the sign
// times the mean magnitude. More are fitted to the values of the step itself:
// LevelFit::kFitted by Lloyd-Max iterations (Lloyd 1982) from cells split at
// their means; kSteps by cells of equal width above the smallest magnitude t,
// as wide as t, each at its centroid (the last is open): few symbols are rare,
// which suits the entropy coder. A book has at most one magnitude for each 8
// values, since it costs bytes itself. |v| goes to the nearest magnitude, ties
// to the smaller, and 0 is one of them: so |v - decoded| <= |v|.
//
// Rounding::kStochastic: level = floor(|v| / step + r) with r uniform in [0,
// 1), so that the mean decoded value is v (QSGD, Alistarh et al. 2017); a
// book's magnitudes are then step, 2 step, ... with a step of 5 significant
// bits, so that each is a bfloat16 number.
//
// A sparse value whose level comes out 0 is not sent: it would carry nothing,
// and stays in the sender's residual.
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_QUANTIZER_H_
#define RIVULET_COMPRESSION_QUANTIZER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compression/compressed_tensor.h"
#include "compression/pass.h"
#include "compression/plan.h"
#include "compression/values_view.h"

namespace rivulet {

// 1, 2, 3, 4, 8, 16 or 32.
bool IsValueBits(int bits);
// Bits of a tensor that is sent whole: 4, 8, 16 or 32.
bool IsLinearBits(int bits);

// The largest level of a linear code.
int32_t MaxLevel(ValueCode code);

// Step sizes and book entries are bfloat16 numbers: these are the two bytes of
// one that is exactly representable, and back.
uint16_t StepToBits(float step);
float StepFromBits(uint16_t bits);

// The step of a group whose largest magnitude is `max_magnitude` (finite, not
// negative).
float QuantizationStep(float max_magnitude, ValueCode code);

// The magnitudes for `values` (finite, at least one not 0): bfloat16 numbers
// above 0, strictly increasing, at most `most`, which is at least 1.
std::vector<float> FitBook(absl::Span<const float> values, int most,
                           LevelFit fit);

// What unbiased rounding draws its numbers from; see RandomPurpose::kRounding.
struct NoiseKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t stream = 0;  // tensor, and who rounds
};

// Streams that no two senders of a run share.
inline uint64_t NoiseStreamOfWorker(int rank, int tensor) {
  return static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(tensor);
}
inline uint64_t NoiseStreamOfShard(int shard, int tensor) {
  return uint64_t{1} << 63 | NoiseStreamOfWorker(shard, tensor);
}

// All of `values` (finite). *out is overwritten.
void QuantizeDense(const ValuesView& values, const TensorPlan& plan,
                   const NoiseKey& noise, CompressedTensor* out);

// *selected (finite and not 0; positions increasing, below `size`) of a tensor.
// Those that are not sent are dropped from it, and *out, which is overwritten,
// has the positions of the others.
void QuantizeSparse(int64_t size, const TensorPlan& plan, const NoiseKey& noise,
                    Candidates* selected, CompressedTensor* out);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_QUANTIZER_H_
