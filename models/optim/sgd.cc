#include "models/optim/sgd.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {

absl::Status SgdOptions::Validate() const {
  // Written so that NaN fails too.
  if (!(momentum >= 0 && momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "momentum is ", momentum, ", allowed is at least 0 and below 1"));
  }
  if (nesterov && momentum == 0) {
    return absl::InvalidArgumentError(
        "Nesterov's form needs a momentum above 0, found 0");
  }
  return absl::OkStatus();
}

Sgd::Sgd(int64_t size, SgdOptions options) : size_(size), options_(options) {
  RV_CHECK_GE(size, 0);
  RV_CHECK(options.Validate().ok()) << options.Validate().ToString();
  if (options.momentum > 0) momentum_.resize(static_cast<size_t>(size));
}

void Sgd::Step(double learning_rate, absl::Span<const float> gradient,
               absl::Span<float> weights) {
  RV_CHECK_EQ(static_cast<int64_t>(gradient.size()), size_);
  RV_CHECK_EQ(static_cast<int64_t>(weights.size()), size_);
  const float rate = static_cast<float>(learning_rate);
  const float momentum = static_cast<float>(options_.momentum);
  const size_t n = weights.size();
  if (momentum_.empty()) {
    for (size_t i = 0; i < n; ++i) weights[i] -= rate * gradient[i];
    return;
  }
  // The buffer starts at zero, so the first step leaves the gradient in it, as
  // PyTorch's does.
  if (options_.nesterov) {
    for (size_t i = 0; i < n; ++i) {
      momentum_[i] = momentum * momentum_[i] + gradient[i];
      weights[i] -= rate * (gradient[i] + momentum * momentum_[i]);
    }
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    momentum_[i] = momentum * momentum_[i] + gradient[i];
    weights[i] -= rate * momentum_[i];
  }
}

}  // namespace rivulet
