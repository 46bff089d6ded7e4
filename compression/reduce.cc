#include "compression/reduce.h"

#include <limits>
#include <utility>

namespace rivulet {

float PassThreshold(const TensorPlan& plan, const Selector& selector,
                    int64_t n) {
  return plan.dense() || plan.silent() ? std::numeric_limits<float>::infinity()
                                       : selector.CandidateThreshold(n);
}

Candidates Reduce(const ValuesView& values, const TensorPlan& plan,
                  const NoiseKey& noise, Candidates found, Selector* selector,
                  CompressedTensor* out) {
  if (plan.dense()) {
    QuantizeDense(values, plan, noise, out);
    return {};
  }
  Candidates sent;
  if (!plan.silent()) {
    sent = selector->SelectFrom(values, plan.density, std::move(found));
  }
  QuantizeSparse(values.size, plan, noise, &sent, out);
  return sent;
}

}  // namespace rivulet
