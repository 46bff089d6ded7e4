#include "compression/difference_compressor.h"

#include <cstddef>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "compression/pass.h"
#include "compression/reduce.h"

namespace rivulet {

absl::Status DifferenceCompressor::Compress(absl::Span<const float> weights,
                                            const TensorPlan& plan,
                                            const NoiseKey& noise,
                                            absl::Span<float> view,
                                            CompressedTensor* out) {
  RV_CHECK_EQ(weights.size(), view.size());
  RV_RETURN_IF_ERROR(plan.Validate());
  PassArgs args;
  args.op = PassOp::kDifference;
  args.size = static_cast<int64_t>(weights.size());
  args.g = weights.data();
  args.v = view.data();
  candidates_.clear();
  if (!RunPass(args, PassThreshold(plan, selector_, args.size), &candidates_)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "weights of a tensor of %d elements are not finite, or too far from "
        "what workers hold",
        weights.size()));
  }
  // w + (-1) v̂ has the same roundings as w - v̂.
  const ValuesView difference(weights.data(), view.data(), -1.0f, args.size);
  Reduce(difference, plan, noise, &candidates_, &selector_, out);
  const int64_t count = out->count();
  for (int64_t i = 0; i < count; ++i) {
    view[out->Position(i)] += out->Decode(i);
  }
  return absl::OkStatus();
}

}  // namespace rivulet
