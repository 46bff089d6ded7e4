// Group norm on blocked images (oneDNN 2.6 has none). All statistics of an
// image come from that image, so images are spread over threads and an image
// stays in the cache from its first pass to its last.

#include <cmath>
#include <vector>

#include "models/ops/cpu/cpu_ops.h"
#include "models/ops/cpu/parallel.h"

namespace rivulet::cpu {
namespace {

// A slab is one block of channels of one image: [pixels][lanes]. Lane sums are
// taken in float over short runs of pixels and then in double.
constexpr int64_t kRun = 32;

template <int kLanes, typename Term>
inline __attribute__((always_inline)) void SumLanes(int64_t pixels,
                                                    double* sums,
                                                    const Term& term) {
  for (int64_t begin = 0; begin < pixels; begin += kRun) {
    const int64_t end = begin + kRun < pixels ? begin + kRun : pixels;
    float run[kLanes] = {};
    for (int64_t p = begin; p < end; ++p) {
#pragma omp simd
      for (int l = 0; l < kLanes; ++l) run[l] += term(p * kLanes + l, l);
    }
    for (int l = 0; l < kLanes; ++l) sums[l] += run[l];
  }
}

template <int kLanes>
inline __attribute__((always_inline)) void SlabSum(int64_t pixels,
                                                   const float* x,
                                                   double* sums) {
  SumLanes<kLanes>(pixels, sums, [=](int64_t i, int) { return x[i]; });
}

template <int kLanes>
inline __attribute__((always_inline)) void SlabSquares(int64_t pixels,
                                                       const float* x,
                                                       const float* mean,
                                                       double* sums) {
  SumLanes<kLanes>(pixels, sums, [=](int64_t i, int l) {
    const float d = x[i] - mean[l];
    return d * d;
  });
}

// y = scale * (x - mean) + shift, where scale holds the inverse deviation.
template <int kLanes>
inline __attribute__((always_inline)) void SlabApply(
    int64_t pixels, bool relu, const float* x, const float* mean,
    const float* scale, const float* shift, float* y) {
  for (int64_t p = 0; p < pixels; ++p) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const int64_t i = p * kLanes + l;
      const float v = (x[i] - mean[l]) * scale[l] + shift[l];
      y[i] = relu && v < 0.0f ? 0.0f : v;
    }
  }
}

// sums of d and of d * (x - mean), d = dy where the ReLU passed.
template <int kLanes>
inline __attribute__((always_inline)) void SlabGradientSums(
    int64_t pixels, bool relu, const float* x, const float* y, const float* dy,
    const float* mean, double* sum, double* sum_x) {
  SumLanes<kLanes>(pixels, sum, [=](int64_t i, int) {
    return relu && !(y[i] > 0.0f) ? 0.0f : dy[i];
  });
  SumLanes<kLanes>(pixels, sum_x, [=](int64_t i, int l) {
    const float d = relu && !(y[i] > 0.0f) ? 0.0f : dy[i];
    return d * (x[i] - mean[l]);
  });
}

// dx = a * d + b * (x - mean) + c per lane.
template <int kLanes>
inline __attribute__((always_inline)) void SlabGradient(
    int64_t pixels, bool relu, const float* x, const float* y, const float* dy,
    const float* mean, const float* a, const float* b, const float* c,
    float* dx) {
  for (int64_t p = 0; p < pixels; ++p) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const int64_t i = p * kLanes + l;
      const float d = relu && !(y[i] > 0.0f) ? 0.0f : dy[i];
      dx[i] = a[l] * d + b[l] * (x[i] - mean[l]) + c[l];
    }
  }
}

// The slab functions for the block sizes that exist, compiled per instruction
// set.
#define RV_FOR_LANES(lanes, call) \
  if ((lanes) == 16) {            \
    constexpr int kLanes = 16;    \
    call;                         \
  } else if ((lanes) == 8) {      \
    constexpr int kLanes = 8;     \
    call;                         \
  } else {                        \
    constexpr int kLanes = 1;     \
    call;                         \
  }

RV_SIMD_CLONES void Sum(int64_t lanes, int64_t pixels, const float* x,
                        double* sums) {
  RV_FOR_LANES(lanes, SlabSum<kLanes>(pixels, x, sums));
}
RV_SIMD_CLONES void Squares(int64_t lanes, int64_t pixels, const float* x,
                            const float* mean, double* sums) {
  RV_FOR_LANES(lanes, SlabSquares<kLanes>(pixels, x, mean, sums));
}
RV_SIMD_CLONES void Apply(int64_t lanes, int64_t pixels, bool relu,
                          const float* x, const float* mean, const float* scale,
                          const float* shift, float* y) {
  RV_FOR_LANES(lanes,
               SlabApply<kLanes>(pixels, relu, x, mean, scale, shift, y));
}
RV_SIMD_CLONES void GradientSums(int64_t lanes, int64_t pixels, bool relu,
                                 const float* x, const float* y,
                                 const float* dy, const float* mean,
                                 double* sum, double* sum_x) {
  RV_FOR_LANES(lanes, SlabGradientSums<kLanes>(pixels, relu, x, y, dy, mean,
                                               sum, sum_x));
}
RV_SIMD_CLONES void Gradient(int64_t lanes, int64_t pixels, bool relu,
                             const float* x, const float* y, const float* dy,
                             const float* mean, const float* a, const float* b,
                             const float* c, float* dx) {
  RV_FOR_LANES(lanes,
               SlabGradient<kLanes>(pixels, relu, x, y, dy, mean, a, b, c, dx));
}
#undef RV_FOR_LANES

class CpuGroupNorm final : public Normalization<float> {
 public:
  CpuGroupNorm(const NormalizationSpec& spec, int64_t block, int threads)
      : spec_(spec),
        block_(block),
        threads_(threads),
        blocks_((spec.shape.c + block - 1) / block),
        channels_(blocks_ * block),
        mean_(spec.shape.n * channels_),
        inverse_deviation_(spec.shape.n * channels_),
        sum_(spec.shape.n * channels_),
        sum_x_(spec.shape.n * channels_) {}

  void Forward(const float* x, const float* scale, const float* shift,
               float* y) override {
    ForwardInto(x, scale, shift, y, mean_.data(), inverse_deviation_.data());
  }

  void Evaluate(const float* x, const float* scale, const float* shift,
                const float* /*running_mean*/, const float* /*running_var*/,
                float* y) override {
    std::vector<float> mean(mean_.size());
    std::vector<float> inverse_deviation(mean_.size());
    ForwardInto(x, scale, shift, y, mean.data(), inverse_deviation.data());
  }

  void Backward(const float* x, const float* y, const float* scale,
                const float* dy, float* dx, float* dscale,
                float* dshift) override {
    ParallelFor(threads_, spec_.shape.n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        BackwardImage(n, x, y, scale, dy, dx);
      }
    });
    // In the order of the images, whatever the threads.
    for (int64_t c = 0; c < spec_.shape.c; ++c) {
      double scale_sum = 0;
      double shift_sum = 0;
      for (int64_t n = 0; n < spec_.shape.n; ++n) {
        const int64_t k = n * channels_ + c;
        scale_sum += sum_x_[k] * inverse_deviation_[k];
        shift_sum += sum_[k];
      }
      dscale[c] = static_cast<float>(scale_sum);
      dshift[c] = static_cast<float>(shift_sum);
    }
  }

  absl::Span<const float> mean() const override { return {}; }
  absl::Span<const float> variance() const override { return {}; }

 private:
  int64_t slab_size() const { return spec_.shape.pixels() * block_; }
  double group_elements() const {
    return static_cast<double>(spec_.group_size * spec_.shape.pixels());
  }

  void ForwardInto(const float* x, const float* scale, const float* shift,
                   float* y, float* mean, float* inverse_deviation) const {
    ParallelFor(threads_, spec_.shape.n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t image = n * blocks_ * slab_size();
        ForwardImage(x + image, scale, shift, y + image, mean + n * channels_,
                     inverse_deviation + n * channels_);
      }
    });
  }

  // mean, inverse_deviation: [channels_], of the channel's group; zero in the
  // padding, which keeps the padding of y zero.
  void ForwardImage(const float* x, const float* scale, const float* shift,
                    float* y, float* mean, float* inverse_deviation) const {
    const int64_t pixels = spec_.shape.pixels();
    std::vector<double> sums(channels_, 0.0);
    for (int64_t b = 0; b < blocks_; ++b) {
      Sum(block_, pixels, x + b * slab_size(), &sums[b * block_]);
    }
    ForEachGroup(sums, [&](int64_t c, double sum) {
      mean[c] = static_cast<float>(sum / group_elements());
    });
    sums.assign(channels_, 0.0);
    for (int64_t b = 0; b < blocks_; ++b) {
      Squares(block_, pixels, x + b * slab_size(), mean + b * block_,
              &sums[b * block_]);
    }
    ForEachGroup(sums, [&](int64_t c, double sum) {
      inverse_deviation[c] = static_cast<float>(
          1.0 / std::sqrt(sum / group_elements() + spec_.epsilon));
    });
    std::vector<float> a(channels_, 0.0f);
    std::vector<float> offset(channels_, 0.0f);
    for (int64_t c = 0; c < spec_.shape.c; ++c) {
      a[c] = scale[c] * inverse_deviation[c];
      offset[c] = shift[c];
    }
    for (int64_t b = 0; b < blocks_; ++b) {
      Apply(block_, pixels, spec_.relu, x + b * slab_size(), mean + b * block_,
            &a[b * block_], &offset[b * block_], y + b * slab_size());
    }
  }

  // With r the inverse deviation, g = scale * d and M elements in a group:
  // dx = r * g - r * sum(g) / M - r^3 * (x - mean) * sum(g * (x - mean)) / M.
  void BackwardImage(int64_t n, const float* x, const float* y,
                     const float* scale, const float* dy, float* dx) {
    const int64_t pixels = spec_.shape.pixels();
    const float* mean = mean_.data() + n * channels_;
    const float* r = inverse_deviation_.data() + n * channels_;
    double* sum = sum_.data() + n * channels_;
    double* sum_x = sum_x_.data() + n * channels_;
    std::fill_n(sum, channels_, 0.0);
    std::fill_n(sum_x, channels_, 0.0);
    for (int64_t b = 0; b < blocks_; ++b) {
      const int64_t slab = (n * blocks_ + b) * slab_size();
      GradientSums(block_, pixels, spec_.relu, x + slab, y + slab, dy + slab,
                   mean + b * block_, sum + b * block_, sum_x + b * block_);
    }
    std::vector<double> weighted(channels_, 0.0);
    std::vector<double> weighted_x(channels_, 0.0);
    std::vector<float> a(channels_, 0.0f);
    std::vector<float> b_x(channels_, 0.0f);
    std::vector<float> constant(channels_, 0.0f);
    for (int64_t c = 0; c < spec_.shape.c; ++c) {
      weighted[c] = sum[c] * scale[c];
      weighted_x[c] = sum_x[c] * scale[c];
      a[c] = scale[c] * r[c];
    }
    ForEachGroup(weighted, [&](int64_t c, double s) {
      constant[c] = static_cast<float>(-r[c] * s / group_elements());
    });
    ForEachGroup(weighted_x, [&](int64_t c, double s) {
      const double cubed = double{r[c]} * r[c] * r[c];
      b_x[c] = static_cast<float>(-cubed * s / group_elements());
    });
    for (int64_t b = 0; b < blocks_; ++b) {
      const int64_t slab = (n * blocks_ + b) * slab_size();
      Gradient(block_, pixels, spec_.relu, x + slab, y + slab, dy + slab,
               mean + b * block_, &a[b * block_], &b_x[b * block_],
               &constant[b * block_], dx + slab);
    }
  }

  // Calls fn(c, sum over c's group of `values`) for every channel.
  template <typename Fn>
  void ForEachGroup(const std::vector<double>& values, const Fn& fn) const {
    for (int64_t first = 0; first < spec_.shape.c; first += spec_.group_size) {
      double sum = 0;
      for (int64_t c = first; c < first + spec_.group_size; ++c) {
        sum += values[c];
      }
      for (int64_t c = first; c < first + spec_.group_size; ++c) fn(c, sum);
    }
  }

  const NormalizationSpec spec_;
  const int64_t block_;
  const int threads_;
  const int64_t blocks_;
  const int64_t channels_;  // padding included
  // [n, channels_] of the last Forward and Backward.
  std::vector<float> mean_, inverse_deviation_;
  std::vector<double> sum_, sum_x_;
};

}  // namespace

std::unique_ptr<Normalization<float>> MakeGroupNorm(
    const NormalizationSpec& spec, int64_t channel_block, int threads) {
  return std::make_unique<CpuGroupNorm>(spec, channel_block, threads);
}

}  // namespace rivulet::cpu
