#include <vector>

#include "models/ops/reference/reference_ops.h"

namespace rivulet::reference {
namespace {

template <typename T>
class ReferenceConvolution final : public Convolution<T> {
 public:
  explicit ReferenceConvolution(const ConvolutionSpec& spec)
      : spec_(spec), in_(spec.input), out_(spec.Output()) {}

  void SetWeights(const T* weight) override {
    weight_.assign(weight, weight + spec_.num_weights());
  }

  void Forward(const T* x, T* y) override {
    for (int64_t n = 0; n < out_.n; ++n) {
      for (int64_t o = 0; o < out_.c; ++o) {
        for (int64_t i = 0; i < out_.h; ++i) {
          for (int64_t j = 0; j < out_.w; ++j) {
            double sum = 0;
            for (int64_t c = 0; c < in_.c; ++c) {
              ForEachTap(i, j, [&](int64_t tap, int64_t row, int64_t column) {
                sum += double{x[Input(n, c, row, column)]} *
                       double{weight_[Weight(o, c, tap)]};
              });
            }
            y[Output(n, o, i, j)] = static_cast<T>(sum);
          }
        }
      }
    }
  }

  void BackwardData(const T* dy, T* dx) override {
    std::vector<double> sums(in_.num_elements(), 0.0);
    for (int64_t n = 0; n < out_.n; ++n) {
      for (int64_t o = 0; o < out_.c; ++o) {
        for (int64_t i = 0; i < out_.h; ++i) {
          for (int64_t j = 0; j < out_.w; ++j) {
            const double d = dy[Output(n, o, i, j)];
            for (int64_t c = 0; c < in_.c; ++c) {
              ForEachTap(i, j, [&](int64_t tap, int64_t row, int64_t column) {
                sums[Input(n, c, row, column)] +=
                    d * double{weight_[Weight(o, c, tap)]};
              });
            }
          }
        }
      }
    }
    for (std::size_t k = 0; k < sums.size(); ++k) {
      dx[k] = static_cast<T>(sums[k]);
    }
  }

  void BackwardWeights(const T* x, const T* dy, T* dweight) override {
    std::vector<double> sums(spec_.num_weights(), 0.0);
    for (int64_t n = 0; n < out_.n; ++n) {
      for (int64_t o = 0; o < out_.c; ++o) {
        for (int64_t i = 0; i < out_.h; ++i) {
          for (int64_t j = 0; j < out_.w; ++j) {
            const double d = dy[Output(n, o, i, j)];
            for (int64_t c = 0; c < in_.c; ++c) {
              ForEachTap(i, j, [&](int64_t tap, int64_t row, int64_t column) {
                sums[Weight(o, c, tap)] +=
                    d * double{x[Input(n, c, row, column)]};
              });
            }
          }
        }
      }
    }
    for (std::size_t k = 0; k < sums.size(); ++k) {
      dweight[k] = static_cast<T>(sums[k]);
    }
  }

 private:
  // Calls fn(tap, row, column) for the taps of output pixel (i, j) that lie
  // inside the input.
  template <typename Fn>
  void ForEachTap(int64_t i, int64_t j, const Fn& fn) const {
    for (int64_t a = 0; a < spec_.kernel; ++a) {
      const int64_t row = i * spec_.stride + a - spec_.padding;
      if (row < 0 || row >= in_.h) continue;
      for (int64_t b = 0; b < spec_.kernel; ++b) {
        const int64_t column = j * spec_.stride + b - spec_.padding;
        if (column < 0 || column >= in_.w) continue;
        fn(a * spec_.kernel + b, row, column);
      }
    }
  }
  int64_t Input(int64_t n, int64_t c, int64_t i, int64_t j) const {
    return ((n * in_.c + c) * in_.h + i) * in_.w + j;
  }
  int64_t Output(int64_t n, int64_t c, int64_t i, int64_t j) const {
    return ((n * out_.c + c) * out_.h + i) * out_.w + j;
  }
  int64_t Weight(int64_t o, int64_t c, int64_t tap) const {
    return (o * in_.c + c) * spec_.kernel * spec_.kernel + tap;
  }

  const ConvolutionSpec spec_;
  const ActivationShape in_;
  const ActivationShape out_;
  std::vector<T> weight_;
};

}  // namespace

template <typename T>
std::unique_ptr<Convolution<T>> MakeConvolution(const ConvolutionSpec& spec) {
  return std::make_unique<ReferenceConvolution<T>>(spec);
}

template std::unique_ptr<Convolution<float>> MakeConvolution(
    const ConvolutionSpec&);
template std::unique_ptr<Convolution<double>> MakeConvolution(
    const ConvolutionSpec&);

}  // namespace rivulet::reference
