// What selection and quantization make of one tensor: the positions that are
// sent and their symbols. Both ends decode it by Decode() alone, so what a
// sender subtracts from its residual is bit for bit what the receiver adds.

#ifndef RIVULET_COMPRESSION_COMPRESSED_TENSOR_H_
#define RIVULET_COMPRESSION_COMPRESSED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rivulet {

// Elements of a dense 8- or 16-bit tensor share one step size per block of this
// many elements (counted from the tensor's start); a sparse one has a single
// step size.
inline constexpr int64_t kQuantizationBlock = 256;

struct CompressedTensor {
  int64_t size = 0;  // elements of the whole tensor
  bool dense = false;
  int value_bits = 32;
  std::vector<uint32_t> positions;  // strictly increasing; empty when dense
  // value_bits 8 or 16: value = levels[i] * steps[block]; `steps` has one entry
  // (sparse) or one per block (dense). value_bits 32: `values` holds them raw.
  std::vector<int32_t> levels;
  std::vector<float> steps;
  std::vector<float> values;

  int64_t count() const {
    return dense ? size : static_cast<int64_t>(positions.size());
  }
  // Where value number i belongs in the whole tensor.
  size_t Position(int64_t i) const {
    return dense ? static_cast<size_t>(i) : positions[static_cast<size_t>(i)];
  }
  // Value number i as the receiver sees it (i counts sent values).
  float Decode(int64_t i) const {
    if (value_bits == 32) return values[static_cast<size_t>(i)];
    const int64_t block = dense ? i / kQuantizationBlock : 0;
    return static_cast<float>(levels[static_cast<size_t>(i)]) *
           steps[static_cast<size_t>(block)];
  }
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_COMPRESSED_TENSOR_H_
