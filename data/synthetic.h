// A data set with a known answer, made on the fly: each class has a prototype,
// a coarse random pattern, and an image is its class's prototype plus noise.
// The nearest prototype is the label, so a small model learns it in seconds,
// and a test of the whole system needs no files.

#ifndef RIVULET_DATA_SYNTHETIC_H_
#define RIVULET_DATA_SYNTHETIC_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"

namespace rivulet {

// Immutable, so thread-safe. Image `index` of a split is a function of the
// seed, the split and the index; both splits share the prototypes.
class SyntheticDataset : public Dataset {
 public:
  // Options must have passed DescribeDataset.
  SyntheticDataset(const DatasetOptions& options, Split split);

  int64_t size() const override { return size_; }
  ImageShape shape() const override { return options_.synthetic_shape; }
  int64_t num_classes() const override { return options_.synthetic_classes; }
  absl::Span<const float> mean() const override { return mean_; }
  absl::Span<const float> stddev() const override { return stddev_; }
  // OutOfRange for an index beyond size().
  absl::StatusOr<int32_t> Read(int64_t index,
                               absl::Span<uint8_t> pixels) const override;

  // The pattern of class `label` without noise, [channels, height, width].
  absl::Span<const uint8_t> prototype(int32_t label) const;

 private:
  const DatasetOptions options_;
  const Split split_;
  const int64_t size_;
  const std::vector<float> mean_;
  const std::vector<float> stddev_;
  std::vector<uint8_t> prototypes_;  // [classes, channels, height, width]
};

}  // namespace rivulet

#endif  // RIVULET_DATA_SYNTHETIC_H_
