// The shard's side of the downlink: compresses w - v̂, the change that workers
// have not got yet, and adds what it sends to v̂ (EF21-P's form of error
// feedback, Gruntkowska et al. 2023). What is not sent stays in w - v̂, so no
// separate residual exists.
//
// Thread-compatible.

#ifndef RIVULET_COMPRESSION_DIFFERENCE_COMPRESSOR_H_
#define RIVULET_COMPRESSION_DIFFERENCE_COMPRESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compression/compressed_tensor.h"
#include "compression/plan.h"
#include "compression/selector.h"

namespace rivulet {

class DifferenceCompressor {
 public:
  // `weights` is w, `view` is v̂ (same size); `view` is advanced by what *out
  // decodes to. InvalidArgument, and nothing changes, when w is not finite.
  absl::Status Compress(absl::Span<const float> weights, const TensorPlan& plan,
                        absl::Span<float> view, CompressedTensor* out);

  SelectorState selector_state() const { return selector_.state(); }
  void set_selector_state(const SelectorState& s) { selector_.set_state(s); }

 private:
  Selector selector_;
  std::vector<float> difference_;  // scratch
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_DIFFERENCE_COMPRESSOR_H_
