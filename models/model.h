// A model on one device: parameters, forward and backward pass. Knows nothing
// of data sets, optimizers or networks.
//
//   RV_ASSIGN_OR_RETURN(auto model, CreateModel(options, {.threads = 1}));
//   InitializeModel(*model, seed);
//   LossResult loss = model->Forward(images, labels);
//   model->Backward([&](int i) { Send(i, model->gradient(i)); });
//
// Deterministic: the same inputs, instruction set and number of threads give
// the same bits. Thread-compatible; the calls of one step come from one thread.

#ifndef RIVULET_MODELS_MODEL_H_
#define RIVULET_MODELS_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "models/manifest/manifest.h"

namespace rivulet {

// Sums over the samples of a batch, so that they add up over workers.
struct LossResult {
  double loss_sum = 0;  // cross entropy, natural logarithm
  int64_t correct = 0;  // samples whose largest logit is the label
  int64_t samples = 0;
};

struct ModelRuntime {
  int threads = 1;
  // kFast uses oneDNN where it was built in and can do the model's shapes, and
  // the naive twin elsewhere; kReference always the twin.
  enum class Ops { kFast, kReference } ops = Ops::kFast;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const Manifest& manifest() const = 0;
  // Whose operations compute: "oneDNN" or "reference".
  virtual std::string ops() const = 0;

  // Flat, row major in PyTorch's layout; owned by the model; valid for its
  // life, but for a gradient whose memory is exchanged. After writing
  // parameters call ParametersChanged() before the next pass.
  virtual absl::Span<float> parameter(int index) = 0;
  virtual absl::Span<const float> gradient(int index) const = 0;
  // The gradient's own memory. Whoever takes the gradient may exchange it for
  // other of the same size, with any contents, until the next Backward.
  virtual AlignedBuffer<float>& gradient_buffer(int index) = 0;
  virtual absl::Span<float> buffer(int index) = 0;
  virtual void ParametersChanged() = 0;

  // Training pass over `labels.size()` images, [n, channels, height, width];
  // n >= 1 and may differ from call to call. Normalization uses the batch's own
  // statistics and updates the running ones (momentum 0.1, as PyTorch).
  virtual LossResult Forward(absl::Span<const float> images,
                             absl::Span<const int32_t> labels) = 0;

  // Backward pass of the last Forward: the gradient of the *mean* loss of its
  // samples. Calls `ready(i)` once for each parameter as soon as gradient(i) is
  // final, from the calling thread, last layers first.
  virtual void Backward(const std::function<void(int)>& ready) = 0;

  // Evaluation pass with the running statistics; changes nothing.
  virtual LossResult Evaluate(absl::Span<const float> images,
                              absl::Span<const int32_t> labels) = 0;

  // Re-estimates the running statistics as plain means over several batches:
  // BeginStatistics(), then Forward over each, then EndStatistics(). Without
  // batch norm this does nothing.
  virtual void BeginStatistics() = 0;
  virtual void EndStatistics() = 0;
};

// InvalidArgument for options that BuildManifest refuses. Parameters are zero
// until InitializeModel or a load.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelOptions& options,
                                                   const ModelRuntime& runtime);

// Sets parameters and buffers to their initial values for `seed`.
void InitializeModel(Model& model, uint64_t seed);

}  // namespace rivulet

#endif  // RIVULET_MODELS_MODEL_H_
