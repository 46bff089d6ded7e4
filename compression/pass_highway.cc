// The sweep in vectors, compiled once for each instruction set.

#include <bit>

#include "compression/pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/pass_highway.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Computes and stores the elements from i on, one vector; returns their s.
template <PassOp kOp, bool kStoreS, class D>
HWY_INLINE hn::Vec<D> Step(D d, const PassArgs& a, size_t i) {
  const auto g = hn::LoadU(d, a.g + i);
  if constexpr (kOp == PassOp::kScan) {
    return g;
  } else if constexpr (kOp == PassOp::kDifference) {
    const auto s = hn::Sub(g, hn::LoadU(d, a.v + i));
    hn::StoreU(s, d, a.s_out + i);
    return s;
  } else if constexpr (kOp == PassOp::kNone) {
    const auto v = hn::Add(hn::LoadU(d, a.v + i), g);
    hn::StoreU(v, d, a.v_out + i);
    return v;
  } else {
    const auto momentum = hn::Set(d, a.momentum);
    auto u = hn::LoadU(d, a.u + i);
    auto added = u;
    if constexpr (kOp == PassOp::kPlain) {
      u = hn::Add(hn::Mul(momentum, u), g);
      added = u;
    } else {
      u = hn::Mul(momentum, hn::Add(u, g));
      added = hn::Add(u, g);
    }
    const auto v = hn::Add(hn::LoadU(d, a.v + i), added);
    hn::StoreU(u, d, a.u_out + i);
    hn::StoreU(v, d, a.v_out + i);
    if constexpr (!kStoreS) {
      return v;
    } else {
      const auto s = hn::Add(v, hn::Mul(hn::Set(d, a.compensation), u));
      hn::StoreU(s, d, a.s_out + i);
      return s;
    }
  }
}

// Elements [begin, end), whole vectors of D; advances *count.
template <PassOp kOp, bool kStoreS, class D>
HWY_INLINE void Sweep(D d, const PassArgs& args, size_t begin, size_t end,
                      float threshold, uint32_t base, uint32_t* positions,
                      size_t* count, bool* finite) {
  const auto limit = hn::Set(d, threshold);
  // s - s is 0 for finite s, NaN otherwise, and NaN stays in a sum.
  auto not_finite = hn::Zero(d);
  size_t found = *count;
  for (size_t i = begin; i < end; i += hn::Lanes(d)) {
    const auto s = Step<kOp, kStoreS>(d, args, i);
    not_finite = hn::Add(not_finite, hn::Sub(s, s));
    const auto hit = hn::Ge(hn::Abs(s), limit);
    if (HWY_LIKELY(hn::AllFalse(d, hit))) continue;
    uint8_t bytes[8] = {0};
    const size_t num_bytes = hn::StoreMaskBits(d, hit, bytes);
    uint64_t bits = 0;
    for (size_t b = 0; b < num_bytes; ++b) {
      bits |= static_cast<uint64_t>(bytes[b]) << (8 * b);
    }
    for (; bits != 0; bits &= bits - 1) {
      positions[found++] =
          base + static_cast<uint32_t>(
                     i + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  *count = found;
  if (!hn::AllTrue(d, hn::Eq(not_finite, hn::Zero(d)))) *finite = false;
}

template <PassOp kOp, bool kStoreS>
HWY_INLINE int64_t SweepAll(const PassArgs& args, float threshold,
                            uint32_t base, uint32_t* positions, bool* finite) {
  const hn::ScalableTag<float> d;
  const size_t size = static_cast<size_t>(args.size);
  const size_t whole = size - size % hn::Lanes(d);
  size_t count = 0;
  Sweep<kOp, kStoreS>(d, args, 0, whole, threshold, base, positions, &count,
                      finite);
  Sweep<kOp, kStoreS>(hn::CappedTag<float, 1>(), args, whole, size, threshold,
                      base, positions, &count, finite);
  return static_cast<int64_t>(count);
}

int64_t PassChunkTarget(const PassArgs& args, float threshold, uint32_t base,
                        uint32_t* positions, bool* finite) {
  const bool store_s = args.s_out != nullptr;
  switch (args.op) {
    case PassOp::kScan:
      return SweepAll<PassOp::kScan, false>(args, threshold, base, positions,
                                            finite);
    case PassOp::kDifference:
      return SweepAll<PassOp::kDifference, true>(args, threshold, base,
                                                 positions, finite);
    case PassOp::kNone:
      return SweepAll<PassOp::kNone, false>(args, threshold, base, positions,
                                            finite);
    case PassOp::kPlain:
      return store_s ? SweepAll<PassOp::kPlain, true>(args, threshold, base,
                                                      positions, finite)
                     : SweepAll<PassOp::kPlain, false>(args, threshold, base,
                                                       positions, finite);
    case PassOp::kNesterov:
      return store_s ? SweepAll<PassOp::kNesterov, true>(args, threshold, base,
                                                         positions, finite)
                     : SweepAll<PassOp::kNesterov, false>(args, threshold, base,
                                                          positions, finite);
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
                  uint32_t* positions, bool* finite) {
  return HWY_DYNAMIC_DISPATCH(PassChunkTarget)(args, threshold, base, positions,
                                               finite);
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
