// What a worker must keep to go on at step c as if nothing had happened, as a
// TensorFile. "Step c" is the state before step c is computed.
//
//   p.<parameter>   v̂, the weights that it computes on
//   b.<buffer>      running statistics
//   u.<parameter>   momentum, v.<parameter> residual; none with policy none
//   metadata        each selector's state as "selector.<parameter>", and the
//                   count of voided steps; whose and of when it is, is
//                   common/daemon/run_member.h's to add and to check
//
// The position in the data and all random numbers follow from the step.

#ifndef RIVULET_WORKER_WORKER_CHECKPOINT_H_
#define RIVULET_WORKER_WORKER_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "models/checkpoint/tensor_file.h"
#include "models/model.h"
#include "worker/push_pipeline.h"

namespace rivulet {

// Steps whose gradient or loss was not finite.
struct VoidCounts {
  int64_t total = 0;
  int64_t in_a_row = 0;
};

// Between steps only.
TensorFile MakeWorkerCheckpoint(const VoidCounts& voided, Model& model,
                                PushPipeline& pipeline);

// Sets everything that MakeWorkerCheckpoint took. Checks all of it first:
// FailedPrecondition names what belongs to another model (found and expected),
// DataLoss what is missing or malformed; nothing has changed then.
absl::Status RestoreWorkerCheckpoint(const TensorFile& file, VoidCounts* voided,
                                     Model& model, PushPipeline& pipeline);

}  // namespace rivulet

#endif  // RIVULET_WORKER_WORKER_CHECKPOINT_H_
