#include "compression/difference_compressor.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "compression/pass.h"
#include "compression/reduce.h"

namespace rivulet {

absl::Status DifferenceCompressor::Compress(absl::Span<const float> weights,
                                            const TensorPlan& plan,
                                            absl::Span<float> view,
                                            CompressedTensor* out) {
  RV_CHECK_EQ(weights.size(), view.size());
  RV_RETURN_IF_ERROR(plan.Validate());
  difference_.resize(weights.size());
  PassArgs args;
  args.op = PassOp::kDifference;
  args.size = static_cast<int64_t>(weights.size());
  args.g = weights.data();
  args.v = view.data();
  args.s_out = difference_.data();
  const float threshold = PassThreshold(plan, selector_, args.size);
  std::vector<uint32_t> candidates;
  if (!RunPass(args, threshold, &candidates)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "weights of a tensor of %d elements are not finite, or too far from "
        "what workers hold",
        weights.size()));
  }
  Reduce(difference_, plan, std::move(candidates), &selector_, out);
  const int64_t count = out->count();
  for (int64_t i = 0; i < count; ++i) {
    view[out->Position(i)] += out->Decode(i);
  }
  return absl::OkStatus();
}

}  // namespace rivulet
