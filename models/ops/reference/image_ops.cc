// Pooling, the parameter-free shortcut and element-by-element operations.

#include <algorithm>

#include "models/ops/reference/reference_ops.h"

namespace rivulet::reference {
namespace {

template <typename T>
class ReferencePool final : public GlobalAveragePool<T> {
 public:
  explicit ReferencePool(const ActivationShape& shape) : shape_(shape) {}

  void Forward(const T* x, T* y) override {
    const int64_t pixels = shape_.pixels();
    for (int64_t k = 0; k < shape_.n * shape_.c; ++k) {
      double sum = 0;
      for (int64_t p = 0; p < pixels; ++p) sum += x[k * pixels + p];
      y[k] = static_cast<T>(sum / static_cast<double>(pixels));
    }
  }

  void BackwardData(const T* dy, T* dx) override {
    const int64_t pixels = shape_.pixels();
    for (int64_t k = 0; k < shape_.n * shape_.c; ++k) {
      std::fill_n(dx + k * pixels, pixels,
                  static_cast<T>(dy[k] / static_cast<double>(pixels)));
    }
  }

 private:
  const ActivationShape shape_;
};

template <typename T>
class ReferenceShortcut final : public Shortcut<T> {
 public:
  explicit ReferenceShortcut(const ShortcutSpec& spec)
      : spec_(spec), out_(spec.Output()) {}

  void Forward(const T* x, T* y) override {
    std::fill_n(y, out_.num_elements(), T{0});
    ForEach([&](int64_t in, int64_t out) { y[out] = x[in]; });
  }

  void BackwardAdd(const T* dy, T* dx) override {
    ForEach([&](int64_t in, int64_t out) { dx[in] += dy[out]; });
  }

 private:
  // Calls fn(input index, output index) for every element that passes.
  template <typename Fn>
  void ForEach(const Fn& fn) const {
    const ActivationShape& in = spec_.input;
    for (int64_t n = 0; n < in.n; ++n) {
      for (int64_t c = 0; c < in.c; ++c) {
        for (int64_t i = 0; i < out_.h; ++i) {
          for (int64_t j = 0; j < out_.w; ++j) {
            const int64_t channel = c + spec_.offset();
            fn(((n * in.c + c) * in.h + 2 * i) * in.w + 2 * j,
               ((n * out_.c + channel) * out_.h + i) * out_.w + j);
          }
        }
      }
    }
  }

  const ShortcutSpec spec_;
  const ActivationShape out_;
};

// std::max(v, 0) lets a NaN pass.
template <typename T>
class ReferenceElementwise final : public Elementwise<T> {
 public:
  void Relu(int64_t size, const T* a, T* y) override {
    for (int64_t i = 0; i < size; ++i) y[i] = std::max(a[i], T{0});
  }
  void AddRelu(int64_t size, const T* a, const T* b, T* y) override {
    for (int64_t i = 0; i < size; ++i) y[i] = std::max(a[i] + b[i], T{0});
  }
  void ReluBackward(int64_t size, const T* y, const T* da, T* dx) override {
    for (int64_t i = 0; i < size; ++i) dx[i] = y[i] > 0 ? da[i] : T{0};
  }
  void AddReluBackward(int64_t size, const T* y, const T* da, const T* db,
                       T* dx) override {
    for (int64_t i = 0; i < size; ++i) {
      dx[i] = y[i] > 0 ? da[i] + db[i] : T{0};
    }
  }
};

}  // namespace

template <typename T>
std::unique_ptr<GlobalAveragePool<T>> MakePool(const ActivationShape& shape) {
  return std::make_unique<ReferencePool<T>>(shape);
}
template <typename T>
std::unique_ptr<Shortcut<T>> MakeShortcut(const ShortcutSpec& spec) {
  return std::make_unique<ReferenceShortcut<T>>(spec);
}
template <typename T>
std::unique_ptr<Elementwise<T>> MakeElementwise() {
  return std::make_unique<ReferenceElementwise<T>>();
}

template std::unique_ptr<GlobalAveragePool<float>> MakePool(
    const ActivationShape&);
template std::unique_ptr<GlobalAveragePool<double>> MakePool(
    const ActivationShape&);
template std::unique_ptr<Shortcut<float>> MakeShortcut(const ShortcutSpec&);
template std::unique_ptr<Shortcut<double>> MakeShortcut(const ShortcutSpec&);
template std::unique_ptr<Elementwise<float>> MakeElementwise();
template std::unique_ptr<Elementwise<double>> MakeElementwise();

}  // namespace rivulet::reference
