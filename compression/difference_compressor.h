// The shard's side of the downlink: compresses w - v̂, the change that workers
// have not got yet, and adds what it sends to v̂ (EF21-P's form of error
// feedback, Gruntkowska et al. 2023). What is not sent stays in w - v̂, so no
// separate residual exists.
//
// Thread-compatible.

#ifndef RIVULET_COMPRESSION_DIFFERENCE_COMPRESSOR_H_
#define RIVULET_COMPRESSION_DIFFERENCE_COMPRESSOR_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compression/compressed_tensor.h"
#include "compression/plan.h"
#include "compression/quantizer.h"
#include "compression/selector.h"

namespace rivulet {

class DifferenceCompressor {
 public:
  // `weights` is w, `view` is v̂ (same size, finite, the same tensor at each
  // call). On success *out is overwritten, `view` is advanced by what it
  // decodes to, and the threshold moves on. InvalidArgument when w is not
  // finite, or so far from v̂ that the difference is not, and for a plan out of
  // range: then `view`, *out and the threshold are as they were.
  absl::Status Compress(absl::Span<const float> weights, const TensorPlan& plan,
                        const NoiseKey& noise, absl::Span<float> view,
                        CompressedTensor* out);

  SelectorState selector_state() const { return selector_.state(); }
  void set_selector_state(const SelectorState& s) { selector_.set_state(s); }

 private:
  Selector selector_;
  Candidates candidates_;  // of the last step: kept for its memory
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_DIFFERENCE_COMPRESSOR_H_
