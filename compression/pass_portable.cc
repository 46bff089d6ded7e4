// The sweep without Highway: the same roundings in plain loops.

#include <cmath>

#include "compression/pass.h"

namespace rivulet {
namespace {

template <PassOp kOp>
float Step(const PassArgs& a, int64_t i) {
  const float g = a.g[i];
  if constexpr (kOp == PassOp::kScan) return g;
  if constexpr (kOp == PassOp::kDifference) return a.s_out[i] = g - a.v[i];
  if constexpr (kOp == PassOp::kNone) return a.v_out[i] = a.v[i] + g;
  float u = 0;
  float added = 0;
  if constexpr (kOp == PassOp::kPlain) {
    u = a.momentum * a.u[i] + g;
    added = u;
  } else {
    u = a.momentum * (a.u[i] + g);
    added = u + g;
  }
  const float v = a.v[i] + added;
  a.u_out[i] = u;
  a.v_out[i] = v;
  if (a.s_out == nullptr) return v;
  return a.s_out[i] = v + a.compensation * u;
}

template <PassOp kOp>
int64_t Loop(const PassArgs& args, float threshold, uint32_t base,
             uint32_t* positions, bool* finite) {
  int64_t count = 0;
  float not_finite = 0;  // s - s is 0 for finite s, NaN otherwise
  for (int64_t i = 0; i < args.size; ++i) {
    const float s = Step<kOp>(args, i);
    not_finite += s - s;
    positions[count] = base + static_cast<uint32_t>(i);
    count += std::fabs(s) >= threshold ? 1 : 0;
  }
  if (not_finite != 0) *finite = false;
  return count;
}

}  // namespace

namespace internal {

int64_t PassChunk(const PassArgs& args, float threshold, uint32_t base,
                  uint32_t* positions, bool* finite) {
  switch (args.op) {
    case PassOp::kScan:
      return Loop<PassOp::kScan>(args, threshold, base, positions, finite);
    case PassOp::kDifference:
      return Loop<PassOp::kDifference>(args, threshold, base, positions,
                                       finite);
    case PassOp::kNone:
      return Loop<PassOp::kNone>(args, threshold, base, positions, finite);
    case PassOp::kPlain:
      return Loop<PassOp::kPlain>(args, threshold, base, positions, finite);
    case PassOp::kNesterov:
      return Loop<PassOp::kNesterov>(args, threshold, base, positions, finite);
  }
  return 0;
}

}  // namespace internal

std::vector<std::string> PassTargets() { return {"portable"}; }

bool UsePassTargetForTest(absl::string_view name) {
  return name.empty() || name == "portable";
}

}  // namespace rivulet
