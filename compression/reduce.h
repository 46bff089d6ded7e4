// Selection and quantization as a plan asks for them: the step that both
// compressors share, between their sweeps over memory.
//
//   std::vector<uint32_t> candidates;
//   RunPass(args, PassThreshold(plan, selector, n), &candidates);
//   Reduce(values, plan, std::move(candidates), &selector, &out);

#ifndef RIVULET_COMPRESSION_REDUCE_H_
#define RIVULET_COMPRESSION_REDUCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compression/compressed_tensor.h"
#include "compression/plan.h"
#include "compression/selector.h"

namespace rivulet {

// From which magnitude on a sweep over `n` values collects candidates: infinity
// (none) where all are sent, or where the selector looks at all of them anyway.
float PassThreshold(const TensorPlan& plan, const Selector& selector,
                    int64_t n);

// Overwrites *out with what `plan`, which is valid, sends of `values` (all
// finite). `candidates` are the positions from PassThreshold on, increasing.
// *selector moves on by one step, except where all are sent.
void Reduce(absl::Span<const float> values, const TensorPlan& plan,
            std::vector<uint32_t> candidates, Selector* selector,
            CompressedTensor* out);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_REDUCE_H_
