#include "data/synthetic.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace rivulet {
namespace {

// Patterns are grids of equal squares, so that a crop shifted by a few pixels
// still shows them.
constexpr int64_t kGrid = 4;
// Prototypes have values in [64, 192), noise adds [-64, 64): no value clips.
constexpr uint32_t kPrototypeRange = 128;
constexpr uint8_t kPrototypeLeast = 64;
constexpr uint8_t kNoise = 64;

// Keys of RandomPurpose::kSyntheticData beside the splits' 0 and 1.
constexpr uint64_t kPrototypeKey = 2;

void MakePrototype(const DatasetOptions& options, int64_t label,
                   absl::Span<uint8_t> pixels) {
  RandomStream rng(options.synthetic_seed, RandomPurpose::kSyntheticData,
                   kPrototypeKey, static_cast<uint64_t>(label));
  const ImageShape& shape = options.synthetic_shape;
  size_t out = 0;
  for (int64_t c = 0; c < shape.channels; ++c) {
    uint8_t cells[kGrid * kGrid];
    for (uint8_t& cell : cells) {
      cell = static_cast<uint8_t>(kPrototypeLeast +
                                  rng.UniformInt(kPrototypeRange));
    }
    for (int64_t y = 0; y < shape.height; ++y) {
      for (int64_t x = 0; x < shape.width; ++x) {
        const int64_t row = y * kGrid / shape.height;
        const int64_t column = x * kGrid / shape.width;
        pixels[out++] = cells[row * kGrid + column];
      }
    }
  }
}

}  // namespace

SyntheticDataset::SyntheticDataset(const DatasetOptions& options, Split split)
    : options_(options),
      split_(split),
      size_(split == Split::kTrain ? options.synthetic_train
                                   : options.synthetic_test),
      mean_(static_cast<size_t>(options.synthetic_shape.channels), 0.5f),
      stddev_(static_cast<size_t>(options.synthetic_shape.channels), 0.25f) {
  const size_t image_size = static_cast<size_t>(shape().size());
  prototypes_.resize(static_cast<size_t>(num_classes()) * image_size);
  for (int64_t label = 0; label < num_classes(); ++label) {
    MakePrototype(
        options_, label,
        absl::MakeSpan(prototypes_)
            .subspan(static_cast<size_t>(label) * image_size, image_size));
  }
}

absl::Span<const uint8_t> SyntheticDataset::prototype(int32_t label) const {
  RV_CHECK(label >= 0 && label < num_classes()) << label;
  const size_t image_size = static_cast<size_t>(shape().size());
  return absl::MakeConstSpan(prototypes_)
      .subspan(static_cast<size_t>(label) * image_size, image_size);
}

absl::StatusOr<int32_t> SyntheticDataset::Read(
    int64_t index, absl::Span<uint8_t> pixels) const {
  if (index < 0 || index >= size_) {
    return absl::OutOfRangeError(
        absl::StrCat("image ", index, " of a data set of ", size_));
  }
  RV_CHECK_EQ(static_cast<int64_t>(pixels.size()), shape().size());
  RandomStream rng(options_.synthetic_seed, RandomPurpose::kSyntheticData,
                   split_ == Split::kTrain ? 0 : 1,
                   static_cast<uint64_t>(index));
  const int32_t label = static_cast<int32_t>(
      rng.UniformInt(static_cast<uint32_t>(num_classes())));
  const absl::Span<const uint8_t> clean = prototype(label);
  uint32_t word = 0;
  for (size_t i = 0; i < pixels.size(); ++i) {
    word = i % 4 == 0 ? rng.Next32() : word >> 8;
    pixels[i] = static_cast<uint8_t>(clean[i] + word % (2 * kNoise) - kNoise);
  }
  return label;
}

}  // namespace rivulet
