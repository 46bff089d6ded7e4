// Stands in for ops/cpu in a build without oneDNN.

#include "models/ops/backend.h"
#include "absl/status/status.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Backend<float>>> MakeCpuBackend(
    int /*threads*/) {
  return absl::UnimplementedError("this build has no oneDNN");
}

}  // namespace rivulet
