// One image from bytes to normalized numbers, shifted and mirrored on the way.

#ifndef RIVULET_DATA_AUGMENT_H_
#define RIVULET_DATA_AUGMENT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "data/dataset.h"

namespace rivulet {

// What is done to one image. The identity by default.
struct Placement {
  // The output's upper left pixel in the image: negative or beyond it where
  // padding shows.
  int64_t top = 0;
  int64_t left = 0;
  bool mirrored = false;  // left and right swapped, after the crop
};

// (byte / 255 - mean) / stddev by table: a byte has only 256 values. Immutable,
// so thread-safe.
class Normalizer {
 public:
  explicit Normalizer(const Dataset& dataset);

  // Writes `pixels`, [channels, height, width], as numbers of the same shape.
  // Padding is black: what a byte of 0 becomes.
  void Apply(absl::Span<const uint8_t> pixels, const Placement& placement,
             absl::Span<float> out) const;

 private:
  const ImageShape shape_;
  std::vector<std::array<float, 256>> tables_;  // one a channel
};

}  // namespace rivulet

#endif  // RIVULET_DATA_AUGMENT_H_
