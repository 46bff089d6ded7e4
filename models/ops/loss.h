// Softmax cross entropy: the loss of all classifiers here.

#ifndef RIVULET_MODELS_OPS_LOSS_H_
#define RIVULET_MODELS_OPS_LOSS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace rivulet {

struct CrossEntropyResult {
  double loss_sum = 0;  // over the samples, natural logarithm
  int64_t correct = 0;  // samples whose first largest logit is the label
};

// logits: plain [labels.size(), classes]; labels in [0, classes). Writes the
// gradient of the *mean* loss with respect to the logits to `gradient`, unless
// that is null; it may be `logits`. Logits are shifted by their maximum and
// summed in double. A logit that is not finite makes the loss NaN.
template <typename T>
CrossEntropyResult SoftmaxCrossEntropy(int64_t classes, const T* logits,
                                       absl::Span<const int32_t> labels,
                                       T* gradient);

extern template CrossEntropyResult SoftmaxCrossEntropy<float>(
    int64_t, const float*, absl::Span<const int32_t>, float*);
extern template CrossEntropyResult SoftmaxCrossEntropy<double>(
    int64_t, const double*, absl::Span<const int32_t>, double*);

}  // namespace rivulet

#endif  // RIVULET_MODELS_OPS_LOSS_H_
