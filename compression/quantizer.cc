#include "compression/quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/base/check.h"

namespace rivulet {
namespace {

void Reset(int64_t size, bool dense, int bits, CompressedTensor* out) {
  RV_CHECK(IsValueBits(bits)) << bits;
  out->size = size;
  out->dense = dense;
  out->value_bits = bits;
  out->positions.clear();
  out->levels.clear();
  out->steps.clear();
  out->values.clear();
}

float MaxMagnitude(absl::Span<const float> values) {
  float max = 0;
  for (const float v : values) max = std::max(max, std::fabs(v));
  return max;
}

// Division and not multiplication by an inverse: the inverse of a tiny step is
// infinite.
int32_t Level(float value, float step, int32_t max_level) {
  const int32_t level = static_cast<int32_t>(std::lrintf(value / step));
  return std::clamp(level, -max_level, max_level);
}

}  // namespace

bool IsValueBits(int bits) { return bits == 8 || bits == 16 || bits == 32; }

int32_t MaxLevel(int bits) {
  RV_CHECK(bits == 8 || bits == 16) << bits;
  return (int32_t{1} << (bits - 1)) - 1;
}

uint16_t StepToBits(float step) {
  const uint32_t bits = std::bit_cast<uint32_t>(step);
  RV_CHECK_EQ(bits & 0xFFFFu, 0u) << "step " << step << " is no bfloat16";
  return static_cast<uint16_t>(bits >> 16);
}

float StepFromBits(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float QuantizationStep(float max_magnitude, int bits) {
  const int32_t max_level = MaxLevel(bits);
  if (max_magnitude == 0) return 0;
  // The quotient of floats may round down. The product of a float and a level
  // is exact in double, so it tells.
  float step = max_magnitude / static_cast<float>(max_level);
  if (static_cast<double>(step) * max_level < max_magnitude) {
    step = std::nextafterf(step, HUGE_VALF);
  }
  uint32_t step_bits = (std::bit_cast<uint32_t>(step) + 0xFFFFu) & ~0xFFFFu;
  // Magnitudes next to the largest float: the top level must stay finite.
  while (!std::isfinite(static_cast<float>(max_level) *
                        std::bit_cast<float>(step_bits))) {
    step_bits -= 0x10000u;
  }
  return std::bit_cast<float>(step_bits);
}

void QuantizeDense(absl::Span<const float> values, int bits,
                   CompressedTensor* out) {
  Reset(static_cast<int64_t>(values.size()), /*dense=*/true, bits, out);
  if (bits == 32) {
    out->values.assign(values.begin(), values.end());
    return;
  }
  const int32_t max_level = MaxLevel(bits);
  out->levels.resize(values.size());
  for (size_t begin = 0; begin < values.size(); begin += kQuantizationBlock) {
    const auto block = values.subspan(begin, kQuantizationBlock);
    const float step = QuantizationStep(MaxMagnitude(block), bits);
    out->steps.push_back(step);
    if (step == 0) continue;  // levels are zero already
    for (size_t i = 0; i < block.size(); ++i) {
      out->levels[begin + i] = Level(block[i], step, max_level);
    }
  }
}

void QuantizeSparse(absl::Span<const float> values,
                    std::vector<uint32_t> positions, int bits,
                    CompressedTensor* out) {
  Reset(static_cast<int64_t>(values.size()), /*dense=*/false, bits, out);
  if (bits == 32) {
    out->values.reserve(positions.size());
    for (const uint32_t p : positions) out->values.push_back(values[p]);
    out->positions = std::move(positions);
    return;
  }
  float max = 0;
  for (const uint32_t p : positions) max = std::max(max, std::fabs(values[p]));
  const float step = QuantizationStep(max, bits);
  out->steps.push_back(step);
  if (step == 0) return;
  const int32_t max_level = MaxLevel(bits);
  size_t kept = 0;
  out->levels.reserve(positions.size());
  for (const uint32_t p : positions) {
    const int32_t level = Level(values[p], step, max_level);
    if (level == 0) continue;
    out->levels.push_back(level);
    positions[kept++] = p;
  }
  positions.resize(kept);
  out->positions = std::move(positions);
}

}  // namespace rivulet
