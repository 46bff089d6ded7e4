// Where a model's operations run: a factory of the operations of ops.h.
//
//   RV_ASSIGN_OR_RETURN(auto backend, MakeCpuBackend(/*threads=*/2));
//   backend->BindThread();
//   RV_ASSIGN_OR_RETURN(auto conv, backend->MakeConvolution(spec));
//   conv->SetWeights(weight);
//   conv->Forward(x, y);

#ifndef RIVULET_MODELS_OPS_BACKEND_H_
#define RIVULET_MODELS_OPS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/ops/ops.h"

namespace rivulet {

// Thread-compatible: a backend and all its operations are used by one thread at
// a time; different backends by different threads at once. It outlives its
// operations. Factories return InvalidArgument for a bad spec and Unimplemented
// or Internal where the library beneath refuses.
template <typename T>
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  // Channels per block of an image; 1: plain [n, c, h, w].
  virtual int64_t channel_block() const = 0;
  // Elements of an image of this shape, padding included.
  int64_t ImageSize(const ActivationShape& shape) const {
    const int64_t block = channel_block();
    return shape.n * ((shape.c + block - 1) / block * block) * shape.pixels();
  }
  // Between plain [n, c, h, w] and an image; Pack zeroes the padding.
  void Pack(const ActivationShape& shape, const T* plain, T* image) const;
  void Unpack(const ActivationShape& shape, const T* image, T* plain) const;

  // Makes the calling thread compute with this backend's number of threads.
  // Call before making or running operations in a thread.
  virtual void BindThread() = 0;

  virtual absl::StatusOr<std::unique_ptr<Convolution<T>>> MakeConvolution(
      const ConvolutionSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<Normalization<T>>> MakeNormalization(
      const NormalizationSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<Linear<T>>> MakeLinear(
      const LinearSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<GlobalAveragePool<T>>> MakePool(
      const ActivationShape& shape) = 0;
  virtual absl::StatusOr<std::unique_ptr<Shortcut<T>>> MakeShortcut(
      const ShortcutSpec& spec) = 0;
  virtual Elementwise<T>& elementwise() = 0;
};

extern template class Backend<float>;
extern template class Backend<double>;

// Naive loops over plain tensors with sums in double: what the others are
// checked against. One thread.
template <typename T>
std::unique_ptr<Backend<T>> MakeReferenceBackend();
extern template std::unique_ptr<Backend<float>> MakeReferenceBackend<float>();
extern template std::unique_ptr<Backend<double>> MakeReferenceBackend<double>();

// oneDNN with `threads` >= 1 OpenMP threads. In a build without oneDNN this is
// the reference backend.
absl::StatusOr<std::unique_ptr<Backend<float>>> MakeCpuBackend(int threads);

}  // namespace rivulet

#endif  // RIVULET_MODELS_OPS_BACKEND_H_
