#include "compression/reduce.h"

#include <limits>
#include <utility>

#include "compression/quantizer.h"

namespace rivulet {

float PassThreshold(const TensorPlan& plan, const Selector& selector,
                    int64_t n) {
  return plan.dense() ? std::numeric_limits<float>::infinity()
                      : selector.CandidateThreshold(n);
}

void Reduce(absl::Span<const float> values, const TensorPlan& plan,
            std::vector<uint32_t> candidates, Selector* selector,
            CompressedTensor* out) {
  if (plan.dense()) {
    QuantizeDense(values, plan.value_bits, out);
    return;
  }
  QuantizeSparse(
      values, selector->SelectFrom(values, plan.density, std::move(candidates)),
      plan.value_bits, out);
}

}  // namespace rivulet
