// Random numbers as functions, not histories: each number depends on a key
// (seed, purpose, a, b) and a position only, so the order in which parts of a
// program draw never matters and nothing has to be checkpointed.
//
//   RandomStream rng(seed, RandomPurpose::kAugment, epoch, sample);
//   const uint32_t x = rng.UniformInt(9);      // 0..8
//
// The generator is Philox4x32-10 (Salmon et al., SC 2011).

#ifndef RIVULET_COMMON_BASE_RANDOM_H_
#define RIVULET_COMMON_BASE_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"

namespace rivulet {

// What a stream is drawn for. The numbers are part of every run's results:
// never reuse or renumber one.
enum class RandomPurpose : uint32_t {
  kInitialWeights = 1,  // a = tensor index
  kShuffle = 2,         // a = epoch
  kAugment = 3,         // a = epoch, b = sample index in the data set
  kSyntheticData = 4,   // a = split, b = sample
  kRounding = 5,        // a = step, b = tensor
  kDropout = 6,         // a = step, b = layer
  kTest = 1000,
};

// A stream of numbers for one key. Thread-compatible; cheap to make.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t a = 0,
               uint64_t b = 0);

  uint32_t Next32();
  uint64_t Next64();
  // Uniform in [0, bound), without bias; `bound` > 0.
  uint32_t UniformInt(uint32_t bound);
  // Uniform in [0, 1): 24 random bits.
  float UniformFloat();
  // Uniform in [0, 1): 53 random bits.
  double UniformDouble();
  // Normal with mean 0 and variance 1 (Box-Muller in double, one draw a call).
  double Normal();

  // Fisher-Yates, so the result depends on the stream's key and size alone.
  template <typename T>
  void Shuffle(absl::Span<T> items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[UniformInt(static_cast<uint32_t>(i))]);
    }
  }

 private:
  void Refill();

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_RANDOM_H_
