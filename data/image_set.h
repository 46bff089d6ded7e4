// Images and labels in memory, one byte a value, as read from files.

#ifndef RIVULET_DATA_IMAGE_SET_H_
#define RIVULET_DATA_IMAGE_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"

namespace rivulet {

struct ImageSet {
  ImageShape shape = {};
  int64_t num_classes = 0;
  std::vector<float> mean = {};      // [channels], in units of 0..1
  std::vector<float> stddev = {};    // [channels]
  std::vector<uint8_t> pixels = {};  // [n, channels, height, width]
  std::vector<uint8_t> labels = {};  // [n]
};

// Immutable, so thread-safe.
class InMemoryDataset : public Dataset {
 public:
  // Sizes must agree with each other.
  explicit InMemoryDataset(ImageSet images);

  int64_t size() const override {
    return static_cast<int64_t>(images_.labels.size());
  }
  ImageShape shape() const override { return images_.shape; }
  int64_t num_classes() const override { return images_.num_classes; }
  absl::Span<const float> mean() const override { return images_.mean; }
  absl::Span<const float> stddev() const override { return images_.stddev; }
  // OutOfRange for an index beyond size().
  absl::StatusOr<int32_t> Read(int64_t index,
                               absl::Span<uint8_t> pixels) const override;

 private:
  const ImageSet images_;
};

// DataLoss naming `where` and a class of which no image was found: a set that
// was put together from too few or repeated files.
absl::Status CheckEveryClassOccurs(const ImageSet& images,
                                   const std::string& where);

}  // namespace rivulet

#endif  // RIVULET_DATA_IMAGE_SET_H_
