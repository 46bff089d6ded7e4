#include <algorithm>

#include "models/ops/cpu/cpu_ops.h"
#include "models/ops/cpu/parallel.h"

namespace rivulet::cpu {
namespace {

// The channel offset need not be a multiple of a block (16 -> 32 channels has
// offset 8), so channels move in runs that stay inside one block on both sides.
class CpuShortcut final : public Shortcut<float> {
 public:
  CpuShortcut(const ShortcutSpec& spec, int64_t block, int threads)
      : spec_(spec), out_(spec.Output()), block_(block), threads_(threads) {}

  void Forward(const float* x, float* y) override {
    const int64_t image = Blocks(out_.c) * out_.pixels() * block_;
    ParallelFor(threads_, out_.n, 1, [&](int64_t begin, int64_t end) {
      std::fill(y + begin * image, y + end * image, 0.0f);
      ForEachRun(begin, end, [&](int64_t in, int64_t out, int64_t length) {
        std::copy_n(x + in, length, y + out);
      });
    });
  }

  void BackwardAdd(const float* dy, float* dx) override {
    ParallelFor(threads_, out_.n, 1, [&](int64_t begin, int64_t end) {
      ForEachRun(begin, end, [&](int64_t in, int64_t out, int64_t length) {
        for (int64_t k = 0; k < length; ++k) dx[in + k] += dy[out + k];
      });
    });
  }

 private:
  int64_t Blocks(int64_t channels) const {
    return (channels + block_ - 1) / block_;
  }

  // Calls fn(input index, output index, number of channels) for all that passes
  // of images [begin, end).
  template <typename Fn>
  void ForEachRun(int64_t begin, int64_t end, const Fn& fn) const {
    const ActivationShape& in = spec_.input;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t c = 0; c < in.c;) {
        const int64_t o = c + spec_.offset();
        const int64_t length =
            std::min({in.c - c, block_ - c % block_, block_ - o % block_});
        const int64_t from = (n * Blocks(in.c) + c / block_) * in.pixels();
        const int64_t to = (n * Blocks(out_.c) + o / block_) * out_.pixels();
        for (int64_t i = 0; i < out_.h; ++i) {
          for (int64_t j = 0; j < out_.w; ++j) {
            fn((from + 2 * i * in.w + 2 * j) * block_ + c % block_,
               (to + i * out_.w + j) * block_ + o % block_, length);
          }
        }
        c += length;
      }
    }
  }

  const ShortcutSpec spec_;
  const ActivationShape out_;
  const int64_t block_;
  const int threads_;
};

}  // namespace

std::unique_ptr<Shortcut<float>> MakeShortcut(const ShortcutSpec& spec,
                                              int64_t channel_block,
                                              int threads) {
  return std::make_unique<CpuShortcut>(spec, channel_block, threads);
}

}  // namespace rivulet::cpu
