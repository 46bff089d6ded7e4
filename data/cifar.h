// CIFAR-10 in its publisher's two layouts (Krizhevsky 2009,
// "Learning Multiple Layers of Features from Tiny Images"): the binary one,
// records of one label byte and 3,072 pixel bytes [channel, row, column], and
// the Python one, pickled dictionaries with the same pixels.

#ifndef RIVULET_DATA_CIFAR_H_
#define RIVULET_DATA_CIFAR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/byte_source.h"
#include "data/dataset.h"
#include "data/image_set.h"

namespace rivulet {

inline constexpr int64_t kCifarRecordsPerFile = 10000;
inline constexpr int64_t kCifarClasses = 10;

// An empty set with CIFAR-10's shape, classes and normalization.
ImageSet EmptyCifarSet();

// Appends `records` records of the binary layout, which must end the source.
// DataLoss naming source, record and reason; `images` then holds a part.
absl::Status AppendCifarBinary(ByteSource& source, int64_t records,
                               ImageSet* images);

// Appends the images of one pickled batch of `records` images. Same errors.
absl::Status AppendCifarPickle(absl::string_view bytes, const std::string& name,
                               int64_t records, ImageSet* images);

// Opens the five training files or the test file. `path` is the folder that
// holds them or its parent; the binary layout is taken where both are there.
// `records_per_file` differs from the published number in tests only.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCifar10(
    const std::string& path, Split split,
    int64_t records_per_file = kCifarRecordsPerFile);

}  // namespace rivulet

#endif  // RIVULET_DATA_CIFAR_H_
