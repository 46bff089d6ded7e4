// Reads one batch of CIFAR-10's Python layout without Python.
//
// The files are pickles of protocol 2: programs for a small stack machine,
// which a general reader would let import and call anything. This one knows
// only the instructions that these files use, calls nothing, and treats numpy's
// constructors as shapes to recognize. Sizes of stack, memo and program are
// bounded; what it does not know is an error that names the byte.

#ifndef RIVULET_DATA_PICKLE_H_
#define RIVULET_DATA_PICKLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// What the dictionary of a batch holds. `data` points into the parsed bytes.
struct PickledBatch {
  int64_t rows = 0;     // images
  int64_t columns = 0;  // bytes of an image
  // Whether `data` lies column by column (numpy's Fortran order) instead of row
  // by row.
  bool column_major = false;
  absl::string_view data;  // rows * columns bytes
  std::vector<int64_t> labels;
};

// DataLoss with position and reason, for the caller to put a file's name
// before.
absl::StatusOr<PickledBatch> ReadPickledBatch(absl::string_view bytes);

}  // namespace rivulet

#endif  // RIVULET_DATA_PICKLE_H_
