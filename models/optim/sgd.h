// SGD on a flat buffer: what a shard steps with. With sparse pushes momentum
// lives in the workers and this is plain SGD; with dense pushes it may hold the
// momentum (PyTorch's form: buf <- m buf + g; plain w -= lr buf, Nesterov
// w -= lr (g + m buf)).
//
// Thread-compatible. Deterministic; no fused multiply-add.

#ifndef RIVULET_MODELS_OPTIM_SGD_H_
#define RIVULET_MODELS_OPTIM_SGD_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace rivulet {

struct SgdOptions {
  double momentum = 0;  // [0, 1); 0 keeps no state
  bool nesterov = false;
  // InvalidArgument naming the value that is out of range.
  absl::Status Validate() const;
};

class Sgd {
 public:
  Sgd(int64_t size, SgdOptions options);

  // One step over all elements; the spans have size() elements.
  void Step(double learning_rate, absl::Span<const float> gradient,
            absl::Span<float> weights);

  int64_t size() const { return size_; }
  // Momentum buffer, empty without momentum; for checkpoints.
  absl::Span<float> state() { return absl::MakeSpan(momentum_); }

 private:
  int64_t size_;
  SgdOptions options_;
  std::vector<float> momentum_;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_OPTIM_SGD_H_
