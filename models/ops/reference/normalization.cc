#include <algorithm>
#include <cmath>
#include <vector>

#include "models/ops/reference/reference_ops.h"

namespace rivulet::reference {
namespace {

// Batch and group norm differ only in which elements share a mean and a
// variance, their "set": all of a channel, or a group of channels in one image.
template <typename T>
class ReferenceNormalization final : public Normalization<T> {
 public:
  explicit ReferenceNormalization(const NormalizationSpec& spec)
      : spec_(spec),
        batch_(spec.kind == NormalizationSpec::Kind::kBatch),
        sets_(batch_ ? spec.shape.c
                     : spec.shape.n * (spec.shape.c / spec.group_size)),
        set_size_(static_cast<double>(spec.shape.num_elements()) /
                  static_cast<double>(sets_)),
        mean_(sets_),
        variance_(sets_),
        channel_mean_(batch_ ? sets_ : 0),
        channel_variance_(batch_ ? sets_ : 0) {}

  void Forward(const T* x, const T* scale, const T* shift, T* y) override {
    mean_.assign(sets_, 0.0);
    variance_.assign(sets_, 0.0);
    ForEach([&](int64_t i, int64_t, int64_t set) { mean_[set] += x[i]; });
    for (double& m : mean_) m /= set_size_;
    ForEach([&](int64_t i, int64_t, int64_t set) {
      const double d = x[i] - mean_[set];
      variance_[set] += d * d;
    });
    for (double& v : variance_) v /= set_size_;
    ForEach([&](int64_t i, int64_t c, int64_t set) {
      y[i] = Activate(Normalized(x[i], set) * scale[c] + shift[c]);
    });
    for (std::size_t c = 0; c < channel_mean_.size(); ++c) {
      channel_mean_[c] = static_cast<T>(mean_[c]);
      channel_variance_[c] = static_cast<T>(variance_[c]);
    }
  }

  // With z the normalized input and d the gradient of the output, masked by the
  // ReLU: dx = (g - mean(g) - z * mean(g * z)) / sqrt(var + eps), g = scale *
  // d.
  void Backward(const T* x, const T* y, const T* scale, const T* dy, T* dx,
                T* dscale, T* dshift) override {
    std::vector<double> sum(sets_, 0.0);
    std::vector<double> sum_z(sets_, 0.0);
    std::vector<double> scale_gradient(spec_.shape.c, 0.0);
    std::vector<double> shift_gradient(spec_.shape.c, 0.0);
    ForEach([&](int64_t i, int64_t c, int64_t set) {
      const double d = Masked(dy[i], y[i]);
      const double z = Normalized(x[i], set);
      sum[set] += d * scale[c];
      sum_z[set] += d * scale[c] * z;
      scale_gradient[c] += d * z;
      shift_gradient[c] += d;
    });
    ForEach([&](int64_t i, int64_t c, int64_t set) {
      const double g = Masked(dy[i], y[i]) * scale[c];
      const double z = Normalized(x[i], set);
      dx[i] = static_cast<T>(
          (g - sum[set] / set_size_ - z * sum_z[set] / set_size_) *
          InverseDeviation(variance_[set]));
    });
    for (int64_t c = 0; c < spec_.shape.c; ++c) {
      dscale[c] = static_cast<T>(scale_gradient[c]);
      dshift[c] = static_cast<T>(shift_gradient[c]);
    }
  }

  void Evaluate(const T* x, const T* scale, const T* shift,
                const T* running_mean, const T* running_var, T* y) override {
    if (!batch_) {
      ReferenceNormalization other(spec_);
      other.Forward(x, scale, shift, y);
      return;
    }
    ForEach([&](int64_t i, int64_t c, int64_t) {
      const double z =
          (x[i] - double{running_mean[c]}) * InverseDeviation(running_var[c]);
      y[i] = Activate(z * scale[c] + shift[c]);
    });
  }

  absl::Span<const T> mean() const override { return channel_mean_; }
  absl::Span<const T> variance() const override { return channel_variance_; }

 private:
  // Calls fn(index, channel, set) for every element.
  template <typename Fn>
  void ForEach(const Fn& fn) const {
    const ActivationShape& s = spec_.shape;
    int64_t i = 0;
    for (int64_t n = 0; n < s.n; ++n) {
      for (int64_t c = 0; c < s.c; ++c) {
        const int64_t set = batch_ ? c : (n * s.c + c) / spec_.group_size;
        for (int64_t p = 0; p < s.pixels(); ++p) fn(i++, c, set);
      }
    }
  }
  double InverseDeviation(double variance) const {
    return 1.0 / std::sqrt(variance + spec_.epsilon);
  }
  double Normalized(double x, int64_t set) const {
    return (x - mean_[set]) * InverseDeviation(variance_[set]);
  }
  T Activate(double value) const {
    return static_cast<T>(spec_.relu ? std::max(value, 0.0) : value);
  }
  double Masked(double d, double y) const {
    return spec_.relu && !(y > 0) ? 0.0 : d;
  }

  const NormalizationSpec spec_;
  const bool batch_;
  const int64_t sets_;
  const double set_size_;
  std::vector<double> mean_;
  std::vector<double> variance_;
  std::vector<T> channel_mean_;
  std::vector<T> channel_variance_;
};

}  // namespace

template <typename T>
std::unique_ptr<Normalization<T>> MakeNormalization(
    const NormalizationSpec& spec) {
  return std::make_unique<ReferenceNormalization<T>>(spec);
}

template std::unique_ptr<Normalization<float>> MakeNormalization(
    const NormalizationSpec&);
template std::unique_ptr<Normalization<double>> MakeNormalization(
    const NormalizationSpec&);

}  // namespace rivulet::reference
