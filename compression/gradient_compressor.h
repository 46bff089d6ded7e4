// The sender's side of Deep Gradient Compression for one tensor (Lin et al.,
// ICLR 2018, algorithm 1 with momentum correction and factor masking): momentum
// u and residual v, selection, quantization, error feedback.
//
//   RV_ASSIGN_OR_RETURN(auto c, GradientCompressor::Create(n, options));
//   CompressedTensor sent;
//   absl::Status status = c->Compress({.gradient = &buffer}, plan, &sent);
//   status.ok() ? c->Commit() : c->Rollback();   // then it is pending
//
// With m the momentum and x = scale * gradient + decay * parameter, a step does
//   plain:    u <- m u + x;    v <- v + u
//   Nesterov: u <- m (u + x);  v <- v + u + x
//   none:     v <- v + gain * x
// then sends q = Q(s) at the selected positions, where s = v + c m/(1-m) u, and
// keeps v <- s - decoded(q), u <- 0 there. With c = 0 this is DGC. In a tensor
// sent denser than `mask_max_density` u is left alone and s = v; so it is when
// `mask` is off.
//
// With c = 1 s obeys s <- s + x/(1-m): error feedback at the nominal learning
// rate at every density, in which momentum has no part of its own. The form
// `none` with gain 1/(1-m) is just that, without any u: it moves 12 instead of
// 20 bytes of memory an element, and keeps 4 instead of 12.
//
// The step's new state is made in the gradient's own memory: u (or, without
// momentum, v) is written over it, and Commit exchanges the buffers. So the
// state before the step is there, bit for bit, until the step is committed, and
// that costs neither memory traffic nor, without momentum, memory.
//
// Exact algebra: where something is sent, v ends as fl(s - decoded); elsewhere
// it keeps what the accumulation above has made of it.
//
// Thread-compatible.

#ifndef RIVULET_COMPRESSION_GRADIENT_COMPRESSOR_H_
#define RIVULET_COMPRESSION_GRADIENT_COMPRESSOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "compression/compressed_tensor.h"
#include "compression/plan.h"
#include "compression/quantizer.h"
#include "compression/selector.h"

namespace rivulet {

enum class MomentumForm { kNone, kPlain, kNesterov };

struct GradientCompressorOptions {
  double momentum = 0.9;  // [0, 1)
  MomentumForm form = MomentumForm::kNesterov;
  bool mask = true;                // clear u where something was sent
  double compensation = 0.0;       // c above, [0, 1]; needs `mask`
  double mask_max_density = 0.02;  // [0, 1]; above it u is never masked
  double gain = 1.0;               // > 0; not 1 with form none only
  int threads = 1;                 // of long sweeps

  // InvalidArgument naming the value that is out of range.
  absl::Status Validate() const;
};

// What a step adds: scale * gradient + decay * parameter.
struct GradientInput {
  // Borrowed until Commit or Rollback, and not to be touched until then. Commit
  // leaves other memory of the same size in it, Rollback this memory; in either
  // case with unspecified contents.
  AlignedBuffer<float>* gradient = nullptr;
  absl::Span<const float> parameter = {};  // may be empty where decay is 0
  float scale = 1;
  float decay = 0;
  NoiseKey noise = {};  // of Rounding::kStochastic
};

class GradientCompressor {
 public:
  // `size` >= 1 elements, at most 2^32 - 1 (positions have 32 bits).
  static absl::StatusOr<std::unique_ptr<GradientCompressor>> Create(
      int64_t size, const GradientCompressorOptions& options);

  // One step; nothing may be pending. On success *out is overwritten and the
  // new state is pending until Commit or Rollback. InvalidArgument for a
  // gradient that is not finite (or so large that the residual would not be),
  // and for a plan out of range: then nothing enters u or v, and nothing is
  // pending.
  absl::Status Compress(const GradientInput& input, const TensorPlan& plan,
                        CompressedTensor* out);
  // Makes the pending step the state.
  void Commit();
  // Forgets the pending step: u, v and the threshold are bit for bit as before.
  void Rollback();

  int64_t size() const;
  // State, for checkpoints and reports: size() elements each, but for
  // MomentumForm::kNone, whose momentum is empty. Nothing may be pending. The
  // spans are valid until the next Compress.
  absl::Span<float> momentum();
  absl::Span<float> residual();
  SelectorState selector_state() const;
  void set_selector_state(const SelectorState& state);

 private:
  struct State;
  explicit GradientCompressor(std::unique_ptr<State> state);

 public:
  ~GradientCompressor();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_GRADIENT_COMPRESSOR_H_
