// One pass over memory each: these operations are limited by it. Fused, because
// oneDNN would need two passes for a gradient that is a sum behind a ReLU.

#include <algorithm>

#include "models/ops/cpu/cpu_ops.h"
#include "models/ops/cpu/parallel.h"

namespace rivulet::cpu {
namespace {

// `omp simd`: outputs may be inputs, but only at the same index.
RV_SIMD_CLONES void ReluLoop(int64_t size, const float* a, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) y[i] = a[i] < 0.0f ? 0.0f : a[i];
}

RV_SIMD_CLONES void AddReluLoop(int64_t size, const float* a, const float* b,
                                float* y) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float sum = a[i] + b[i];
    y[i] = sum < 0.0f ? 0.0f : sum;
  }
}

RV_SIMD_CLONES void ReluBackwardLoop(int64_t size, const float* y,
                                     const float* da, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) dx[i] = y[i] > 0.0f ? da[i] : 0.0f;
}

RV_SIMD_CLONES void AddReluBackwardLoop(int64_t size, const float* y,
                                        const float* da, const float* db,
                                        float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float sum = da[i] + db[i];
    dx[i] = y[i] > 0.0f ? sum : 0.0f;
  }
}

class CpuElementwise final : public Elementwise<float> {
 public:
  explicit CpuElementwise(int threads) : threads_(threads) {}

  void Relu(int64_t size, const float* a, float* y) override {
    Split(size,
          [=](int64_t begin, int64_t n) { ReluLoop(n, a + begin, y + begin); });
  }
  void AddRelu(int64_t size, const float* a, const float* b,
               float* y) override {
    Split(size, [=](int64_t begin, int64_t n) {
      AddReluLoop(n, a + begin, b + begin, y + begin);
    });
  }
  void ReluBackward(int64_t size, const float* y, const float* da,
                    float* dx) override {
    Split(size, [=](int64_t begin, int64_t n) {
      ReluBackwardLoop(n, y + begin, da + begin, dx + begin);
    });
  }
  void AddReluBackward(int64_t size, const float* y, const float* da,
                       const float* db, float* dx) override {
    Split(size, [=](int64_t begin, int64_t n) {
      AddReluBackwardLoop(n, y + begin, da + begin, db + begin, dx + begin);
    });
  }

 private:
  // Below 16 KiB a part is not worth waking a thread for.
  template <typename Fn>
  void Split(int64_t size, const Fn& fn) const {
    constexpr int64_t kGrain = 4096;
    ParallelFor(threads_, size, kGrain,
                [&](int64_t begin, int64_t end) { fn(begin, end - begin); });
  }

  const int threads_;
};

}  // namespace

std::unique_ptr<Elementwise<float>> MakeElementwise(int threads) {
  return std::make_unique<CpuElementwise>(threads);
}

}  // namespace rivulet::cpu
