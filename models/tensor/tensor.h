// Sizes of image tensors. There is no tensor class: operations take a shape
// when they are made and plain pointers when they run, so that one block of
// memory (common/base/aligned_buffer.h) serves every step and batch size.

#ifndef RIVULET_MODELS_TENSOR_TENSOR_H_
#define RIVULET_MODELS_TENSOR_TENSOR_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"

namespace rivulet {

// [batch, channels, height, width]; every size is at least 1.
struct ActivationShape {
  int64_t n = 1;
  int64_t c = 1;
  int64_t h = 1;
  int64_t w = 1;

  int64_t num_elements() const { return n * c * h * w; }
  int64_t pixels() const { return h * w; }
  bool IsValid() const { return n >= 1 && c >= 1 && h >= 1 && w >= 1; }
  std::string ToString() const {
    return absl::StrCat("[", n, ", ", c, ", ", h, ", ", w, "]");
  }
};

inline bool operator==(const ActivationShape& a, const ActivationShape& b) {
  return a.n == b.n && a.c == b.c && a.h == b.h && a.w == b.w;
}

}  // namespace rivulet

#endif  // RIVULET_MODELS_TENSOR_TENSOR_H_
