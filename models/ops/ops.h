// The operations that the models are made of, one declaration for every
// backend. An operation is made for one shape by a Backend (backend.h) and then
// run many times: a fast backend compiles code and chooses layouts for a shape.
//
// Conventions, for all classes here:
// - T is float, or double in the reference backend (to check gradients).
// - "image" pointers are activations in the backend's own layout, of
//   Backend::ImageSize(shape) elements: plain [n, c, h, w] in the reference
//   backend, channels in blocks of 8 or 16 in the CPU's. Values in the padding
//   of a block are zero, and every operation keeps them so.
// - "plain" pointers are row major without padding, in PyTorch's layout: all
//   parameters and their gradients, and matrices [n, features].
// - Outputs are overwritten unless a function's name says Add. Pointers are
//   borrowed for the call. Inputs and outputs do not overlap unless allowed.
// - Errors of a shape come from the factory; running cannot fail.
// - Thread-compatible: one operation is run by one thread at a time.
// - Deterministic: the same inputs, processor and number of threads give the
//   same bits.

#ifndef RIVULET_MODELS_OPS_OPS_H_
#define RIVULET_MODELS_OPS_OPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "models/tensor/tensor.h"

namespace rivulet {

// A square convolution with zero padding and without bias.
struct ConvolutionSpec {
  ActivationShape input;
  int64_t out_channels = 1;
  int64_t kernel = 3;   // >= 1
  int64_t stride = 1;   // >= 1
  int64_t padding = 1;  // >= 0
  // The input is a plain [n, c, h, w] tensor, not an image: the first layer.
  bool plain_input = false;
  // Whether BackwardData will be called.
  bool needs_input_gradient = true;

  ActivationShape Output() const;
  int64_t num_weights() const {
    return out_channels * input.c * kernel * kernel;
  }
  // Multiplications and additions of one forward pass, padding included.
  double ForwardFlops() const;
  absl::Status Validate() const;  // InvalidArgument naming what is out of range
};

template <typename T>
class Convolution {
 public:
  virtual ~Convolution() = default;
  // Takes `weight`, plain [out, in, kernel, kernel], for the passes that
  // follow.
  virtual void SetWeights(const T* weight) = 0;
  // x: image (or plain, see the spec) of spec.input; y: image of spec.Output().
  virtual void Forward(const T* x, T* y) = 0;
  virtual void BackwardData(const T* dy, T* dx) = 0;
  // dweight: plain, summed over the batch.
  virtual void BackwardWeights(const T* x, const T* dy, T* dweight) = 0;
};

// Normalization with a scale and a shift per channel, and optionally a ReLU
// after it: y = relu(scale * (x - mean) / sqrt(var + epsilon) + shift). Mean
// and biased variance are those of a channel over the batch (Ioffe & Szegedy
// 2015) or of a group of channels in one image (Wu & He 2018).
struct NormalizationSpec {
  enum class Kind { kBatch, kGroup };
  ActivationShape shape;
  Kind kind = Kind::kBatch;
  int64_t group_size =
      1;  // kGroup: neighbouring channels in a group; divides c
  bool relu = false;
  double epsilon = 1e-5;

  absl::Status Validate() const;  // InvalidArgument naming what is out of range
};

template <typename T>
class Normalization {
 public:
  virtual ~Normalization() = default;
  // scale, shift: plain [c]. Remembers what Backward needs beside x and y.
  virtual void Forward(const T* x, const T* scale, const T* shift, T* y) = 0;
  // The backward pass of the last Forward. dx may be dy. dscale, dshift: [c].
  virtual void Backward(const T* x, const T* y, const T* scale, const T* dy,
                        T* dx, T* dscale, T* dshift) = 0;
  // Batch norm with the given statistics instead of the batch's, which group
  // norm does not look at. Changes nothing that Backward needs.
  virtual void Evaluate(const T* x, const T* scale, const T* shift,
                        const T* running_mean, const T* running_var, T* y) = 0;
  // Of the last Forward, [c], the variance biased; empty for group norm.
  virtual absl::Span<const T> mean() const = 0;
  virtual absl::Span<const T> variance() const = 0;
};

// y = x * weight^T + bias, on plain matrices.
struct LinearSpec {
  int64_t batch = 1;
  int64_t in = 1;
  int64_t out = 1;
  bool needs_input_gradient = true;

  absl::Status Validate() const;  // InvalidArgument naming what is out of range
};

template <typename T>
class Linear {
 public:
  virtual ~Linear() = default;
  // x: [batch, in]; weight: [out, in]; bias: [out]; y: [batch, out].
  virtual void Forward(const T* x, const T* weight, const T* bias, T* y) = 0;
  virtual void BackwardData(const T* dy, const T* weight, T* dx) = 0;
  virtual void BackwardWeights(const T* x, const T* dy, T* dweight,
                               T* dbias) = 0;
};

// The mean over all pixels: image -> plain [n, c].
absl::Status ValidatePoolShape(const ActivationShape& shape);

template <typename T>
class GlobalAveragePool {
 public:
  virtual ~GlobalAveragePool() = default;
  virtual void Forward(const T* x, T* y) = 0;
  virtual void BackwardData(const T* dy, T* dx) = 0;
};

// The parameter-free shortcut of He et al. 2016 (option A): every second row
// and column, with zero channels added on both sides, (out_channels - c) / 2
// each.
struct ShortcutSpec {
  ActivationShape input;
  int64_t out_channels = 1;  // >= input.c, by an even number

  ActivationShape Output() const {
    return {input.n, out_channels, (input.h + 1) / 2, (input.w + 1) / 2};
  }
  int64_t offset() const { return (out_channels - input.c) / 2; }
  absl::Status Validate() const;  // InvalidArgument naming what is out of range
};

template <typename T>
class Shortcut {
 public:
  virtual ~Shortcut() = default;
  virtual void Forward(const T* x, T* y) = 0;
  // Adds the gradient of the input to dx.
  virtual void BackwardAdd(const T* dy, T* dx) = 0;
};

// Element by element over flat buffers of one layout; `size` elements. The
// gradient of a ReLU passes where its output y is positive.
template <typename T>
class Elementwise {
 public:
  virtual ~Elementwise() = default;
  // y = max(a, 0) and y = max(a + b, 0); y may be a or b.
  virtual void Relu(int64_t size, const T* a, T* y) = 0;
  virtual void AddRelu(int64_t size, const T* a, const T* b, T* y) = 0;
  // dx = (y > 0) ? da : 0 and the same of da + db; dx may be da or db.
  virtual void ReluBackward(int64_t size, const T* y, const T* da, T* dx) = 0;
  virtual void AddReluBackward(int64_t size, const T* y, const T* da,
                               const T* db, T* dx) = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_OPS_OPS_H_
