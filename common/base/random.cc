#include "common/base/random.h"

#include <cmath>
#include <numbers>

#include "Random123/philox.h"
#include "common/base/check.h"

namespace rivulet {
namespace {

using Philox = r123::Philox4x32;

// Mixes the 256 bits that name a stream into Philox's 64-bit key and the upper
// 64 bits of its counter by running the generator itself over them, so that
// streams of related names share nothing.
Philox::ctr_type Mix(Philox::ctr_type counter, uint64_t value) {
  const Philox::key_type key = {
      {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)}};
  return Philox()(counter, key);
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t a,
                           uint64_t b) {
  Philox::ctr_type state = {{static_cast<uint32_t>(purpose), 0, 0, 0}};
  state = Mix(state, seed);
  state = Mix(state, a);
  state = Mix(state, b);
  key_ = {state[0], state[1]};
  counter_ = {0, 0, state[2], state[3]};
}

void RandomStream::Refill() {
  const Philox::ctr_type counter = {
      {counter_[0], counter_[1], counter_[2], counter_[3]}};
  const Philox::key_type key = {{key_[0], key_[1]}};
  const Philox::ctr_type out = Philox()(counter, key);
  block_ = {out[0], out[1], out[2], out[3]};
  used_ = 0;
  if (++counter_[0] == 0) ++counter_[1];
}

uint32_t RandomStream::Next32() {
  if (used_ == 4) Refill();
  return block_[used_++];
}

uint64_t RandomStream::Next64() {
  const uint64_t low = Next32();
  return low | static_cast<uint64_t>(Next32()) << 32;
}

uint32_t RandomStream::UniformInt(uint32_t bound) {
  RV_CHECK_GT(bound, 0u);
  // Lemire's method: reject the few values that would make small results
  // likelier.
  uint64_t product = uint64_t{Next32()} * bound;
  if (static_cast<uint32_t>(product) < bound) {
    const uint32_t threshold = (0u - bound) % bound;
    while (static_cast<uint32_t>(product) < threshold) {
      product = uint64_t{Next32()} * bound;
    }
  }
  return static_cast<uint32_t>(product >> 32);
}

float RandomStream::UniformFloat() {
  return static_cast<float>(Next32() >> 8) * 0x1p-24f;
}

double RandomStream::UniformDouble() {
  return static_cast<double>(Next64() >> 11) * 0x1p-53;
}

double RandomStream::Normal() {
  // 1 - u is in (0, 1], so the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - UniformDouble()));
  return radius * std::cos(2.0 * std::numbers::pi * UniformDouble());
}

}  // namespace rivulet
