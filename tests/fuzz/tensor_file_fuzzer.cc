// Whatever bytes a weights or checkpoint file holds, reading it ends in an
// error or in tensors that agree with themselves.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "models/checkpoint/tensor_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = rivulet::ParseTensorFile(
      absl::string_view(reinterpret_cast<const char*>(data), size), "input");
  if (!file.ok()) {
    RV_CHECK(file.status().code() == absl::StatusCode::kDataLoss)
        << file.status().ToString();
    return 0;
  }
  for (const rivulet::NamedTensor& tensor : file->tensors) {
    int64_t elements = 1;
    for (const int64_t dimension : tensor.shape) elements *= dimension;
    RV_CHECK_EQ(elements, static_cast<int64_t>(tensor.values.size()));
    RV_CHECK(file->Find(tensor.name) == &tensor) << tensor.name;
  }
  return 0;
}
