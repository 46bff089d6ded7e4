#include "models/ops/loss.h"

#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace rivulet {
namespace {

// Index of the first largest value. A NaN never compares as larger.
template <typename T>
int64_t ArgMax(int64_t classes, const T* row) {
  int64_t best = 0;
  for (int64_t c = 1; c < classes; ++c) {
    if (row[c] > row[best]) best = c;
  }
  return best;
}

template <typename T>
bool AllFinite(int64_t classes, const T* row) {
  for (int64_t c = 0; c < classes; ++c) {
    if (!std::isfinite(row[c])) return false;
  }
  return true;
}

}  // namespace

template <typename T>
CrossEntropyResult SoftmaxCrossEntropy(int64_t classes, const T* logits,
                                       absl::Span<const int32_t> labels,
                                       T* gradient) {
  CrossEntropyResult result;
  const double inverse_batch = 1.0 / static_cast<double>(labels.size());
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const T* row = logits + static_cast<int64_t>(n) * classes;
    const int64_t label = labels[n];
    RV_CHECK(label >= 0 && label < classes)
        << "label " << label << " of sample " << n << ", classes " << classes;
    const bool finite = AllFinite(classes, row);
    const int64_t best = ArgMax(classes, row);
    const double top = static_cast<double>(row[best]);
    // What is not a number has no largest one.
    if (finite && best == label) ++result.correct;
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) {
      sum += std::exp(static_cast<double>(row[c]) - top);
    }
    // An infinite logit would give a finite loss when it is not the label's.
    result.loss_sum +=
        finite ? std::log(sum) + top - static_cast<double>(row[label])
               : std::numeric_limits<double>::quiet_NaN();
    if (gradient == nullptr) continue;
    T* out = gradient + static_cast<int64_t>(n) * classes;
    for (int64_t c = 0; c < classes; ++c) {
      const double p = std::exp(static_cast<double>(row[c]) - top) / sum;
      out[c] = static_cast<T>((p - (c == label ? 1.0 : 0.0)) * inverse_batch);
    }
  }
  return result;
}

template CrossEntropyResult SoftmaxCrossEntropy<float>(
    int64_t, const float*, absl::Span<const int32_t>, float*);
template CrossEntropyResult SoftmaxCrossEntropy<double>(
    int64_t, const double*, absl::Span<const int32_t>, double*);

}  // namespace rivulet
