// The numbers that a step may send of a tensor, as a sweep leaves them behind:
// an array, or a sum of two that is not worth the memory of a third.

#ifndef RIVULET_COMPRESSION_VALUES_VIEW_H_
#define RIVULET_COMPRESSION_VALUES_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace rivulet {

// Element i is a[i], or, where b is given, a[i] + factor * b[i], each operation
// rounded by itself, as compression/pass.h does. Borrows the arrays, of `size`
// elements. A plain value.
struct ValuesView {
  const float* a = nullptr;
  const float* b = nullptr;
  float factor = 0;
  int64_t size = 0;

  ValuesView() = default;
  // NOLINTBEGIN(google-explicit-constructor): an array is its own view
  ValuesView(absl::Span<const float> values)
      : a(values.data()), size(static_cast<int64_t>(values.size())) {}
  ValuesView(const std::vector<float>& values)
      : ValuesView(absl::Span<const float>(values)) {}
  // NOLINTEND(google-explicit-constructor)
  ValuesView(const float* first, const float* second, float times,
             int64_t num_elements)
      : a(first), b(second), factor(times), size(num_elements) {}

  float operator[](size_t i) const {
    return b == nullptr ? a[i] : a[i] + factor * b[i];
  }
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_VALUES_VIEW_H_
