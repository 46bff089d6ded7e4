#include "compression/reduce.h"

#include <limits>

namespace rivulet {

float PassThreshold(const TensorPlan& plan, const Selector& selector,
                    int64_t n) {
  return plan.dense() || plan.silent() ? std::numeric_limits<float>::infinity()
                                       : selector.CandidateThreshold(n);
}

void Reduce(const ValuesView& values, const TensorPlan& plan,
            const NoiseKey& noise, Candidates* candidates, Selector* selector,
            CompressedTensor* out) {
  if (plan.dense()) {
    QuantizeDense(values, plan, noise, out);
    return;
  }
  if (plan.silent()) {
    candidates->clear();
  } else {
    selector->SelectFrom(values, plan.density, candidates);
  }
  QuantizeSparse(values.size, plan, noise, candidates, out);
}

}  // namespace rivulet
