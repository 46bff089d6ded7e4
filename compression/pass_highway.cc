// The sweep in vectors, compiled once for each instruction set.

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

// Elements [begin, end), whole vectors of D; advances *count.
template <PassOp kOp, bool kDecayed, bool kStream, class D>
HWY_INLINE void Sweep(D d, const PassArgs& args, size_t begin, size_t end,
                      float threshold, uint32_t base, uint32_t* positions,
                      float* values, size_t* count, bool* finite) {
  const hn::RebindToUnsigned<D> du;
  const auto limit = hn::Set(d, threshold);
  // s - s is 0 for finite s, NaN otherwise, and NaN stays in a sum.
  auto not_finite = hn::Zero(d);
  size_t found = *count;
  for (size_t i = begin; i < end; i += hn::Lanes(d)) {
    const auto s = Step<kOp, kDecayed, kStream>(d, args, i);
    not_finite = hn::Add(not_finite, hn::Sub(s, s));
    const auto hit = hn::Ge(hn::Abs(s), limit);
    if (HWY_LIKELY(hn::AllFalse(d, hit))) continue;
    hn::CompressStore(hn::Iota(du, base + static_cast<uint32_t>(i)),
                      hn::RebindMask(du, hit), du, positions + found);
    found += hn::CompressStore(s, hit, d, values + found);
  }
  *count = found;
  if (!hn::AllTrue(d, hn::Eq(not_finite, hn::Zero(d)))) *finite = false;
}

template <PassOp kOp, bool kDecayed, bool kStream>
HWY_INLINE int64_t SweepAll(const PassArgs& args, float threshold,
                            uint32_t base, uint32_t* positions, float* values,
                            bool* finite) {
  const hn::ScalableTag<float> d;
  const size_t size = static_cast<size_t>(args.size);
  const size_t whole = size - size % hn::Lanes(d);
  size_t count = 0;
  Sweep<kOp, kDecayed, kStream>(d, args, 0, whole, threshold, base, positions,
                                values, &count, finite);
  Sweep<kOp, kDecayed, false>(hn::CappedTag<float, 1>(), args, whole, size,
                              threshold, base, positions, values, &count,
                              finite);
  if constexpr (kStream) hwy::FlushStream();
  return static_cast<int64_t>(count);
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
