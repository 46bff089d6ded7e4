// MNIST and Fashion-MNIST: pairs of files in the idx format (LeCun's), plain or
// gzipped. A file is a magic number {0, 0, 8 for bytes, number of dimensions},
// the dimensions as big-endian 32-bit numbers, and the bytes.

#ifndef RIVULET_DATA_IDX_H_
#define RIVULET_DATA_IDX_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/byte_source.h"
#include "data/dataset.h"
#include "data/image_set.h"

namespace rivulet {

// The idx sets: names, normalization and numbers of images.
struct IdxSet {
  const char* name;    // "fashion_mnist"
  const char* folder;  // where torchvision would have put it
  float mean;          // of the training pixels, in units of 0..1
  float stddev;
  int64_t train_images;
  int64_t test_images;
};

inline constexpr int64_t kIdxClasses = 10;
inline constexpr ImageShape kIdxShape = {
    .channels = 1, .height = 28, .width = 28};

// Null for a name that is none of them.
const IdxSet* FindIdxSet(const std::string& name);

// Reads `count` images of kIdxShape, or labels of 0..9, which must end the
// source. DataLoss naming source, record and reason.
absl::Status ReadIdxImages(ByteSource& source, int64_t count, ImageSet* images);
absl::Status ReadIdxLabels(ByteSource& source, int64_t count, ImageSet* images);

// Opens train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz], or the
// t10k ones, in `path` or in its folder <set.folder>/raw.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const IdxSet& set,
                                                       const std::string& path,
                                                       Split split);

}  // namespace rivulet

#endif  // RIVULET_DATA_IDX_H_
