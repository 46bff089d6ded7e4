// Stands in for ops/cpu in a build without oneDNN.

#include "models/ops/backend.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Backend<float>>> MakeCpuBackend(
    int /*threads*/) {
  return MakeReferenceBackend<float>();
}

}  // namespace rivulet
