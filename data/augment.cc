#include "data/augment.h"

#include <algorithm>
#include <cstddef>

#include "common/base/check.h"

namespace rivulet {
namespace {

// One row of the output; `row` is null where it is all padding.
void ApplyRow(const uint8_t* row, int64_t width, const Placement& placement,
              const std::array<float, 256>& table, float* out) {
  const float black = table[0];
  if (row == nullptr) {
    std::fill_n(out, width, black);
    return;
  }
  // Columns [first, last) of the crop lie inside the image.
  const int64_t first = std::clamp<int64_t>(-placement.left, 0, width);
  const int64_t last =
      std::clamp<int64_t>(width - placement.left, first, width);
  if (!placement.mirrored) {
    std::fill(out, out + first, black);
    for (int64_t x = first; x < last; ++x)
      out[x] = table[row[x + placement.left]];
    std::fill(out + last, out + width, black);
    return;
  }
  float* const end = out + width - 1;  // column x goes to end[-x]
  std::fill(out + width - first, out + width, black);
  for (int64_t x = first; x < last; ++x)
    end[-x] = table[row[x + placement.left]];
  std::fill(out, out + width - last, black);
}

}  // namespace

Normalizer::Normalizer(const Dataset& dataset) : shape_(dataset.shape()) {
  tables_.resize(static_cast<size_t>(shape_.channels));
  for (size_t c = 0; c < tables_.size(); ++c) {
    const float mean = dataset.mean()[c];
    const float stddev = dataset.stddev()[c];
    for (size_t byte = 0; byte < 256; ++byte) {
      tables_[c][byte] = (static_cast<float>(byte) / 255.0f - mean) / stddev;
    }
  }
}

void Normalizer::Apply(absl::Span<const uint8_t> pixels,
                       const Placement& placement,
                       absl::Span<float> out) const {
  RV_CHECK_EQ(static_cast<int64_t>(pixels.size()), shape_.size());
  RV_CHECK_EQ(pixels.size(), out.size());
  const int64_t height = shape_.height;
  const int64_t width = shape_.width;
  float* to = out.data();
  for (int64_t c = 0; c < shape_.channels; ++c) {
    const uint8_t* channel = pixels.data() + c * height * width;
    for (int64_t y = 0; y < height; ++y, to += width) {
      const int64_t from = y + placement.top;
      const bool inside = from >= 0 && from < height;
      ApplyRow(inside ? channel + from * width : nullptr, width, placement,
               tables_[static_cast<size_t>(c)], to);
    }
  }
}

}  // namespace rivulet
