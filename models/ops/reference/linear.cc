#include "models/ops/reference/reference_ops.h"

namespace rivulet::reference {
namespace {

template <typename T>
class ReferenceLinear final : public Linear<T> {
 public:
  explicit ReferenceLinear(const LinearSpec& spec) : spec_(spec) {}

  void Forward(const T* x, const T* weight, const T* bias, T* y) override {
    for (int64_t n = 0; n < spec_.batch; ++n) {
      for (int64_t o = 0; o < spec_.out; ++o) {
        double sum = bias[o];
        for (int64_t i = 0; i < spec_.in; ++i) {
          sum += double{x[n * spec_.in + i]} * double{weight[o * spec_.in + i]};
        }
        y[n * spec_.out + o] = static_cast<T>(sum);
      }
    }
  }

  void BackwardData(const T* dy, const T* weight, T* dx) override {
    for (int64_t n = 0; n < spec_.batch; ++n) {
      for (int64_t i = 0; i < spec_.in; ++i) {
        double sum = 0;
        for (int64_t o = 0; o < spec_.out; ++o) {
          sum +=
              double{dy[n * spec_.out + o]} * double{weight[o * spec_.in + i]};
        }
        dx[n * spec_.in + i] = static_cast<T>(sum);
      }
    }
  }

  void BackwardWeights(const T* x, const T* dy, T* dweight, T* dbias) override {
    for (int64_t o = 0; o < spec_.out; ++o) {
      double bias = 0;
      for (int64_t n = 0; n < spec_.batch; ++n) bias += dy[n * spec_.out + o];
      dbias[o] = static_cast<T>(bias);
      for (int64_t i = 0; i < spec_.in; ++i) {
        double sum = 0;
        for (int64_t n = 0; n < spec_.batch; ++n) {
          sum += double{dy[n * spec_.out + o]} * double{x[n * spec_.in + i]};
        }
        dweight[o * spec_.in + i] = static_cast<T>(sum);
      }
    }
  }

 private:
  const LinearSpec spec_;
};

}  // namespace

template <typename T>
std::unique_ptr<Linear<T>> MakeLinear(const LinearSpec& spec) {
  return std::make_unique<ReferenceLinear<T>>(spec);
}

template std::unique_ptr<Linear<float>> MakeLinear(const LinearSpec&);
template std::unique_ptr<Linear<double>> MakeLinear(const LinearSpec&);

}  // namespace rivulet::reference
