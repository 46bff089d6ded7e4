// Puts the shards' WeightsParts together into the file that is exported.
// No I/O. Thread-compatible.

#ifndef RIVULET_SERVER_CONTROLLER_WEIGHTS_ASSEMBLER_H_
#define RIVULET_SERVER_CONTROLLER_WEIGHTS_ASSEMBLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/run_plan.h"
#include "models/checkpoint/tensor_file.h"
#include "proto/controller.pb.h"

namespace rivulet {

class WeightsAssembler {
 public:
  explicit WeightsAssembler(std::shared_ptr<const RunPlan> plan);

  // OutOfRange for a tensor or range that does not exist; InvalidArgument for a
  // piece that overlaps another, or bytes that are no whole floats. Nothing
  // changes then.
  absl::Status Add(const v1::WeightsPart& part);

  // Parameters, then buffers, in manifest order, with the metadata that tells
  // the model. DataLoss names the first tensor that is not whole. Call it once:
  // the values move out.
  absl::StatusOr<TensorFile> Finish();

 private:
  // A flat buffer that fills up in pieces.
  struct Target {
    std::vector<float> values;
    std::map<int64_t, int64_t> filled;  // begin -> end, disjoint
    int64_t num_filled = 0;
  };

  const std::shared_ptr<const RunPlan> plan_;
  std::vector<Target> parameters_;
  Target buffers_;  // all of them end to end
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_WEIGHTS_ASSEMBLER_H_
