// The sweep in vectors, compiled once for each instruction set.

#include <bit>
#include <cstdint>
#include <cstring>

#include "compression/pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/pass_highway.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <bool kDecayed, class D>
HWY_INLINE hn::Vec<D> GradientAt(D d, const PassArgs& a, size_t i) {
  const auto x = hn::Mul(hn::Set(d, a.scale), hn::LoadU(d, a.g + i));
  if constexpr (!kDecayed) return x;
  return hn::Add(x, hn::Mul(hn::Set(d, a.decay), hn::LoadU(d, a.w + i)));
}

// Computes and stores the elements from i on, one vector; returns their s.
template <PassOp kOp, bool kDecayed, bool kStream, class D>
HWY_INLINE hn::Vec<D> Step(D d, const PassArgs& a, size_t i) {
  if constexpr (kOp == PassOp::kScan) {
    return hn::LoadU(d, a.g + i);
  } else if constexpr (kOp == PassOp::kDifference) {
    return hn::Sub(hn::LoadU(d, a.g + i), hn::LoadU(d, a.v + i));
  } else if constexpr (kOp == PassOp::kFeedback) {
    const auto x = GradientAt<kDecayed>(d, a, i);
    const auto v = hn::Add(hn::LoadU(d, a.v + i), x);
    hn::StoreU(v, d, a.v_out + i);
    return v;
  } else {
    const auto x = GradientAt<kDecayed>(d, a, i);
    const auto momentum = hn::Set(d, a.momentum);
    auto u = hn::LoadU(d, a.u + i);
    auto added = u;
    if constexpr (kOp == PassOp::kPlain) {
      u = hn::Add(hn::Mul(momentum, u), x);
      added = u;
    } else {
      u = hn::Mul(momentum, hn::Add(u, x));
      added = hn::Add(u, x);
    }
    const auto v = hn::Add(hn::LoadU(d, a.v + i), added);
    hn::StoreU(u, d, a.u_out + i);
    if constexpr (kStream) {
      hn::Stream(v, d, a.v_out + i);
    } else {
      hn::StoreU(v, d, a.v_out + i);
    }
    // The sum with 0 * u is v but for the sign of a zero, which no threshold
    // sees.
    return hn::Add(v, hn::Mul(hn::Set(d, a.compensation), u));
  }
}

// The s of one element, once its outputs are stored: the same roundings.
template <PassOp kOp>
HWY_INLINE float StoredAt(const PassArgs& a, size_t i) {
  if constexpr (kOp == PassOp::kScan) return a.g[i];
  if constexpr (kOp == PassOp::kDifference) return a.g[i] - a.v[i];
  if constexpr (kOp == PassOp::kFeedback) return a.v_out[i];
  return a.v_out[i] + a.compensation * a.u_out[i];
}

// Elements [begin, end), whole vectors of D. Sets the bit of each hit in
// `hits`, from bit `begin` on, which is a multiple of 8 or the last whole
// byte's end.
template <PassOp kOp, bool kDecayed, bool kStream, class D>
HWY_INLINE void Sweep(D d, const PassArgs& args, size_t begin, size_t end,
                      float threshold, uint8_t* hits, bool* finite) {
  const auto limit = hn::Set(d, threshold);
  // s - s is 0 for finite s, NaN otherwise, and NaN stays in a sum.
  auto not_finite = hn::Zero(d);
  for (size_t i = begin; i < end; i += hn::Lanes(d)) {
    const auto s = Step<kOp, kDecayed, kStream>(d, args, i);
    not_finite = hn::Add(not_finite, hn::Sub(s, s));
    const auto hit = hn::Ge(hn::Abs(s), limit);
    if constexpr (hn::MaxLanes(D()) >= 8) {
      hn::StoreMaskBits(d, hit, hits + i / 8);
    } else {
      // Part of a byte; StoreMaskBits writes whole ones.
      uint8_t bits[8];
      hn::StoreMaskBits(d, hit, bits);
      hits[i / 8] = static_cast<uint8_t>(hits[i / 8] | bits[0] << (i % 8));
    }
  }
  if (!hn::AllTrue(d, hn::Eq(not_finite, hn::Zero(d)))) *finite = false;
}

// A branch on each vector of the sweep would be foreseen wrongly at each hit,
// and stop what is on its way from memory; so hits are noted as bits and
// gathered after the chunk, which is then still in the cache.
template <PassOp kOp>
HWY_INLINE int64_t Gather(const PassArgs& args, const uint8_t* hits,
                          uint32_t base, uint32_t* positions, float* values) {
  const size_t size = static_cast<size_t>(args.size);
  int64_t count = 0;
  for (size_t word = 0; word * 64 < size; ++word) {
    uint64_t bits;
    std::memcpy(&bits, hits + 8 * word, sizeof(bits));
    for (; bits != 0; bits &= bits - 1) {
      const size_t i = word * 64 + static_cast<size_t>(std::countr_zero(bits));
      positions[count] = base + static_cast<uint32_t>(i);
      values[count] = StoredAt<kOp>(args, i);
      ++count;
    }
  }
  return count;
}

template <PassOp kOp, bool kDecayed, bool kStream>
HWY_INLINE int64_t SweepAll(const PassArgs& given, float threshold,
                            uint32_t base, uint32_t* positions, float* values,
                            bool* finite) {
  // What is stored could alias the arguments themselves, but not a copy.
  const PassArgs args = given;
  const hn::ScalableTag<float> d;
  const size_t size = static_cast<size_t>(args.size);
  const size_t whole = size - size % hn::Lanes(d);
  // Bytes that no vector writes whole, and the last word's rest, must be clear.
  alignas(64) uint8_t hits[internal::kPassChunk / 8 + 8];
  std::memset(hits + whole / 8, 0, sizeof(hits) - whole / 8);
  if constexpr (hn::MaxLanes(hn::ScalableTag<float>()) < 8) {
    std::memset(hits, 0, sizeof(hits));
  }
  Sweep<kOp, kDecayed, kStream>(d, args, 0, whole, threshold, hits, finite);
  Sweep<kOp, kDecayed, false>(hn::CappedTag<float, 1>(), args, whole, size,
                              threshold, hits, finite);
  if constexpr (kStream) hwy::FlushStream();
  return Gather<kOp>(args, hits, base, positions, values);
}

template <PassOp kOp>
HWY_INLINE int64_t SweepMomentum(const PassArgs& args, float threshold,
                                 uint32_t base, uint32_t* positions,
                                 float* values, bool* finite) {
  if (args.w != nullptr) {
    return args.stream_v
               ? SweepAll<kOp, true, true>(args, threshold, base, positions,
                                           values, finite)
               : SweepAll<kOp, true, false>(args, threshold, base, positions,
                                            values, finite);
  }
  return args.stream_v ? SweepAll<kOp, false, true>(args, threshold, base,
                                                    positions, values, finite)
                       : SweepAll<kOp, false, false>(args, threshold, base,
                                                     positions, values, finite);
}

int64_t PassChunkTarget(const PassArgs& args, float threshold, uint32_t base,
                        uint32_t* positions, float* values, bool* finite) {
  switch (args.op) {
    case PassOp::kScan:
      return SweepAll<PassOp::kScan, false, false>(args, threshold, base,
                                                   positions, values, finite);
    case PassOp::kDifference:
      return SweepAll<PassOp::kDifference, false, false>(
          args, threshold, base, positions, values, finite);
    case PassOp::kFeedback:
      return args.w != nullptr
                 ? SweepAll<PassOp::kFeedback, true, false>(
                       args, threshold, base, positions, values, finite)
                 : SweepAll<PassOp::kFeedback, false, false>(
                       args, threshold, base, positions, values, finite);
    case PassOp::kPlain:
      return SweepMomentum<PassOp::kPlain>(args, threshold, base, positions,
                                           values, finite);
    case PassOp::kNesterov:
      return SweepMomentum<PassOp::kNesterov>(args, threshold, base, positions,
                                              values, finite);
  }
  return 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(PassChunkTarget);

namespace internal {

int64_t PassChunk(const PassArgs& args, float threshold, uint32_t base,
                  uint32_t* positions, float* values, bool* finite) {
  return HWY_DYNAMIC_DISPATCH(PassChunkTarget)(args, threshold, base, positions,
                                               values, finite);
}

}  // namespace internal

std::vector<std::string> PassTargets() {
  std::vector<std::string> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.push_back(hwy::TargetName(target));
  }
  return names;
}

bool UsePassTargetForTest(absl::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  int64_t targets = hwy::SupportedTargets();
  if (!name.empty()) {
    targets = 0;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (name == hwy::TargetName(target)) targets = target;
    }
    if (targets == 0) return false;
    hwy::SetSupportedTargetsForTest(targets);
  }
  hwy::GetChosenTarget().Update(targets);
  return true;
}

}  // namespace rivulet
#endif  // HWY_ONCE
