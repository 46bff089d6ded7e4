// Selection and quantization as a plan asks for them: the step that both
// compressors share, after their sweep over memory.
//
//   Candidates candidates;
//   RunPass(args, PassThreshold(plan, selector, n), &candidates);
//   Reduce(values, plan, noise, &candidates, &selector, &out);

#ifndef RIVULET_COMPRESSION_REDUCE_H_
#define RIVULET_COMPRESSION_REDUCE_H_

#include <cstdint>

#include "compression/compressed_tensor.h"
#include "compression/pass.h"
#include "compression/plan.h"
#include "compression/quantizer.h"
#include "compression/selector.h"
#include "compression/values_view.h"

namespace rivulet {

// From which magnitude on a sweep over `n` values collects candidates: infinity
// (none) where all or none are sent, or where the selector looks at all of them
// anyway.
float PassThreshold(const TensorPlan& plan, const Selector& selector,
                    int64_t n);

// Overwrites *out with what `plan`, which is valid, sends of `values` (all
// finite). *candidates are the elements from PassThreshold on, in order, and
// become those that are sent, with their values (none where all are).
// *selector moves on by one step, except where all or none are sent.
void Reduce(const ValuesView& values, const TensorPlan& plan,
            const NoiseKey& noise, Candidates* candidates, Selector* selector,
            CompressedTensor* out);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_REDUCE_H_
