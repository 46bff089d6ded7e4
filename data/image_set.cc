#include "data/image_set.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {

InMemoryDataset::InMemoryDataset(ImageSet images) : images_(std::move(images)) {
  RV_CHECK_EQ(images_.pixels.size(),
              images_.labels.size() * static_cast<size_t>(shape().size()));
  RV_CHECK_EQ(static_cast<int64_t>(images_.mean.size()), shape().channels);
  RV_CHECK_EQ(static_cast<int64_t>(images_.stddev.size()), shape().channels);
}

absl::StatusOr<int32_t> InMemoryDataset::Read(
    int64_t index, absl::Span<uint8_t> pixels) const {
  if (index < 0 || index >= size()) {
    return absl::OutOfRangeError(
        absl::StrCat("image ", index, " of a data set of ", size()));
  }
  const size_t image_size = static_cast<size_t>(shape().size());
  RV_CHECK_EQ(pixels.size(), image_size);
  std::copy_n(images_.pixels.data() + static_cast<size_t>(index) * image_size,
              image_size, pixels.data());
  return images_.labels[static_cast<size_t>(index)];
}

absl::Status CheckEveryClassOccurs(const ImageSet& images,
                                   const std::string& where) {
  std::vector<bool> seen(static_cast<size_t>(images.num_classes), false);
  for (const uint8_t label : images.labels) seen[label] = true;
  for (size_t c = 0; c < seen.size(); ++c) {
    if (seen[c]) continue;
    return absl::DataLossError(absl::StrCat(
        where, ": none of the ", images.labels.size(), " images has label ", c,
        ", expected are all of 0..", seen.size() - 1));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
