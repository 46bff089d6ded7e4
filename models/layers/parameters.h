// A model's parameters, gradients and running statistics in plain layout, and
// the rules by which running statistics change.

#ifndef RIVULET_MODELS_LAYERS_PARAMETERS_H_
#define RIVULET_MODELS_LAYERS_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "models/manifest/manifest.h"
#include "models/tensor/tensor.h"

namespace rivulet {

// Owns the memory; spans stay valid for its life, but for gradients' when their
// buffer is exchanged. Thread-compatible.
class Parameters {
 public:
  explicit Parameters(Manifest manifest);

  const Manifest& manifest() const { return manifest_; }
  // Number of the parameter or buffer of that name, which exists.
  int Find(const std::string& name) const;
  int FindBuffer(const std::string& name) const;

  absl::Span<float> value(int index);
  absl::Span<float> gradient(int index);
  absl::Span<const float> gradient(int index) const;
  // The gradient's own memory, which may be exchanged for other of its size
  // between passes.
  AlignedBuffer<float>& gradient_buffer(int index);
  absl::Span<float> buffer(int index);

  // Grows at every Changed(): layers keep weights in their own formats and
  // compare this with what they last packed. Starts at 1.
  int64_t version() const { return version_; }
  void Changed() { ++version_; }

  // Takes the statistics of one batch: `mean` and biased `variance` over
  // `count` values a channel. Moves the running ones by a tenth towards mean
  // and unbiased variance, as PyTorch's BatchNorm2d does; between
  // BeginStatistics and EndStatistics only gathers them.
  void RecordStatistics(int mean_buffer, int variance_buffer,
                        absl::Span<const float> mean,
                        absl::Span<const float> variance, int64_t count);
  void BeginStatistics();
  // Sets the running statistics to the plain means of what was gathered; where
  // nothing was, they stay.
  void EndStatistics();

 private:
  // Tensors one after the other in one piece of memory, each on a cache line.
  class Tensors {
   public:
    explicit Tensors(const std::vector<TensorSpec>& specs);
    absl::Span<float> at(int index);

   private:
    std::vector<int64_t> offsets_;
    std::vector<int64_t> sizes_;
    AlignedBuffer<float> data_;
  };
  struct Gathered {
    std::vector<double> sum;
    int64_t batches = 0;
  };

  void Gather(int buffer, absl::Span<const float> values, double factor);

  const Manifest manifest_;
  Tensors values_, buffers_;
  std::vector<AlignedBuffer<float>> gradients_;
  int64_t version_ = 1;
  bool gathering_ = false;
  std::vector<Gathered> gathered_;  // per buffer
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_LAYERS_PARAMETERS_H_
