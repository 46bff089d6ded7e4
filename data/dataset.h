// Image classification data sets: what is read, checked and held in memory.
//
// Thread-safe after opening: all const calls may come from any thread.

#ifndef RIVULET_DATA_DATASET_H_
#define RIVULET_DATA_DATASET_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rivulet {

enum class Split { kTrain, kTest };

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t size() const { return channels * height * width; }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual ImageShape shape() const = 0;
  virtual int64_t num_classes() const = 0;
  // Mean and standard deviation of each channel, in units of 0..1.
  virtual absl::Span<const float> mean() const = 0;
  virtual absl::Span<const float> stddev() const = 0;
  // Writes the raw bytes of image `index`, [channels, height, width], to
  // `pixels`, shape().size() of them, and returns its label, in [0,
  // num_classes()). May be called from any thread, from several at once.
  // OutOfRange for an index that is not in [0, size()), and then nothing is
  // written. A data set that reads files as it goes may add their errors.
  virtual absl::StatusOr<int32_t> Read(int64_t index,
                                       absl::Span<uint8_t> pixels) const = 0;
};

struct DatasetOptions {
  // cifar10 | fashion_mnist | mnist | synthetic
  std::string name = "cifar10";
  std::string path = {};  // folder; unused for synthetic
  // synthetic: sizes and shape; the seed is the data set's own, not the run's.
  int64_t synthetic_train = 2048;
  int64_t synthetic_test = 512;
  int64_t synthetic_classes = 10;
  ImageShape synthetic_shape = {3, 32, 32};
  uint64_t synthetic_seed = 1;
};

// The names that OpenDataset takes.
const std::vector<std::string>& BuiltInDatasets();

// Shape and classes of a data set, from its name and options alone (no file is
// touched): what a shard needs to build the manifest.
struct DatasetInfo {
  ImageShape shape;
  int64_t num_classes = 0;
  int64_t train_size = 0;
  int64_t test_size = 0;
};
absl::StatusOr<DatasetInfo> DescribeDataset(const DatasetOptions& options);

// NotFound names the missing folder or file and what was looked for; DataLoss
// names a damaged file, the record and the reason.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(
    const DatasetOptions& options, Split split);

}  // namespace rivulet

#endif  // RIVULET_DATA_DATASET_H_
