// What selection and quantization make of one tensor: the positions that are
// sent and their symbols. Both ends decode it by Decode() alone, so what a
// sender subtracts from its residual is bit for bit what the receiver adds.

#ifndef RIVULET_COMPRESSION_COMPRESSED_TENSOR_H_
#define RIVULET_COMPRESSION_COMPRESSED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rivulet {

// Elements of a tensor that is sent whole share one step size per block of this
// many (counted from the tensor's start); a sparse one has a single step size.
inline constexpr int64_t kQuantizationBlock = 256;

// The most magnitudes that a book has (4 bits, sign included).
inline constexpr int kMaxBook = 8;

// How a value is made of its symbol.
enum class ValueCode : uint8_t {
  kFloat,     // the value itself
  kLinear16,  // level * step, level in [-32767, 32767]
  kLinear8,   // ... in [-127, 127]
  kLinear4,   // ... in [-7, 7]
  kBook,      // sign and number of a magnitude: level in ±1 ... ±book size
};

struct CompressedTensor {
  int64_t size = 0;  // elements of the whole tensor
  bool dense = false;
  ValueCode code = ValueCode::kFloat;
  std::vector<uint32_t> positions;  // strictly increasing; empty when dense
  std::vector<float> values;        // kFloat
  std::vector<int16_t> levels;      // the others; none is 0 in a sparse tensor
  // kLinear*: of a sparse tensor one, of a dense one for each block.
  std::vector<float> steps;
  // kBook: magnitudes > 0, strictly increasing, at most kMaxBook.
  std::vector<float> book;

  int64_t count() const {
    return dense ? size : static_cast<int64_t>(positions.size());
  }
  // Where value number i belongs in the whole tensor.
  size_t Position(int64_t i) const {
    return dense ? static_cast<size_t>(i) : positions[static_cast<size_t>(i)];
  }
  // Value number i as the receiver sees it (i counts sent values).
  float Decode(int64_t i) const {
    const size_t at = static_cast<size_t>(i);
    if (code == ValueCode::kFloat) return values[at];
    const int level = levels[at];
    if (code == ValueCode::kBook) {
      return level > 0 ? book[static_cast<size_t>(level - 1)]
                       : -book[static_cast<size_t>(-level - 1)];
    }
    const int64_t block = dense ? i / kQuantizationBlock : 0;
    return static_cast<float>(level) * steps[static_cast<size_t>(block)];
  }
  // Makes it empty, of a tensor of `num_elements`; memory is kept.
  void Reset(int64_t num_elements, bool is_dense, ValueCode value_code) {
    size = num_elements;
    dense = is_dense;
    code = value_code;
    positions.clear();
    values.clear();
    levels.clear();
    steps.clear();
    book.clear();
  }
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_COMPRESSED_TENSOR_H_
