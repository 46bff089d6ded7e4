// Whatever bytes a CIFAR-10 file holds, in either layout, reading it ends in an
// error or in the number of images that was asked for. The first byte chooses
// that number and the layout.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "data/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool pickle = data[0] >= 0x80;
  const int64_t records = data[0] & 3;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                                size - 1);
  rivulet::ImageSet images = rivulet::EmptyCifarSet();
  const absl::Status status =
      pickle ? rivulet::AppendCifarPickle(bytes, "input", records, &images)
             : rivulet::AppendCifarBinary(*rivulet::OpenMemory(bytes, "input"),
                                          records, &images);
  if (!status.ok()) {
    RV_CHECK(status.code() == absl::StatusCode::kDataLoss) << status.ToString();
    return 0;
  }
  RV_CHECK_EQ(static_cast<int64_t>(images.labels.size()), records);
  RV_CHECK_EQ(static_cast<int64_t>(images.pixels.size()),
              records * images.shape.size());
  for (const uint8_t label : images.labels) RV_CHECK_LT(label, 10);
  return 0;
}
