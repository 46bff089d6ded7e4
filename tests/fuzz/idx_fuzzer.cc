// Whatever bytes an idx file holds, reading it ends in an error or in the
// number of records that was asked for. The first byte chooses that number and
// between images and labels.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool labels = data[0] >= 0x80;
  const int64_t count = data[0] & 3;
  const auto source = rivulet::OpenMemory(
      absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1),
      "input");
  rivulet::ImageSet images;
  const absl::Status status =
      labels ? rivulet::ReadIdxLabels(*source, count, &images)
             : rivulet::ReadIdxImages(*source, count, &images);
  if (!status.ok()) {
    RV_CHECK(status.code() == absl::StatusCode::kDataLoss) << status.ToString();
    return 0;
  }
  if (!labels) {
    RV_CHECK_EQ(static_cast<int64_t>(images.pixels.size()),
                count * rivulet::kIdxShape.size());
    return 0;
  }
  RV_CHECK_EQ(static_cast<int64_t>(images.labels.size()), count);
  for (const uint8_t label : images.labels) RV_CHECK_LT(label, 10);
  return 0;
}
