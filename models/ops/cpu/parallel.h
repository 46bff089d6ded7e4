// How the loops of this folder that oneDNN does not run are spread over threads
// and vector units.

#ifndef RIVULET_MODELS_OPS_CPU_PARALLEL_H_
#define RIVULET_MODELS_OPS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>

// Put before a function: it is compiled for AVX-512, AVX2 and the base
// instruction set, and the loader takes what the processor has. All versions
// give the same bits as long as no sum is reordered (fp contraction is off).
#if defined(__x86_64__)
#define RV_SIMD_CLONES \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RV_SIMD_CLONES
#endif

namespace rivulet::cpu {

// Calls fn(begin, end) for `threads` contiguous, nearly equal parts of
// [0, count), multiples of `grain` but for the last, one in each thread of the
// OpenMP team, and waits for all.
template <typename Fn>
void ParallelFor(int threads, int64_t count, int64_t grain, const Fn& fn) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(threads, grains);
  if (parts <= 1) {
    if (count > 0) fn(int64_t{0}, count);
    return;
  }
#pragma omp parallel for schedule(static, 1) \
    num_threads(static_cast<int>(parts))
  for (int64_t k = 0; k < parts; ++k) {
    fn(grains * k / parts * grain,
       std::min(count, grains * (k + 1) / parts * grain));
  }
}

}  // namespace rivulet::cpu

#endif  // RIVULET_MODELS_OPS_CPU_PARALLEL_H_
