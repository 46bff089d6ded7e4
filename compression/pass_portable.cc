// The sweep without Highway: the same roundings in plain loops.

#include <cmath>

#include "compression/pass.h"

namespace rivulet {
namespace {

float GradientAt(const PassArgs& a, int64_t i) {
  if (a.w != nullptr) return a.scale * a.g[i] + a.decay * a.w[i];
  return a.scale * a.g[i];
}

template <PassOp kOp>
float Step(const PassArgs& a, int64_t i) {
  if constexpr (kOp == PassOp::kScan) return a.g[i];
  if constexpr (kOp == PassOp::kDifference) return a.g[i] - a.v[i];
  const float x = GradientAt(a, i);
  if constexpr (kOp == PassOp::kFeedback) return a.v_out[i] = a.v[i] + x;
  float u;
  float added;
  if constexpr (kOp == PassOp::kPlain) {
    u = a.momentum * a.u[i] + x;
    added = u;
  } else {
    u = a.momentum * (a.u[i] + x);
    added = u + x;
  }
  const float v = a.v[i] + added;
  a.u_out[i] = u;
  a.v_out[i] = v;
  return v + a.compensation * u;
}

template <PassOp kOp>
int64_t Loop(const PassArgs& args, float threshold, uint32_t base,
             uint32_t* positions, float* values, bool* finite) {
  int64_t count = 0;
  float not_finite = 0;  // s - s is 0 for finite s, NaN otherwise
  for (int64_t i = 0; i < args.size; ++i) {
    const float s = Step<kOp>(args, i);
    not_finite += s - s;
    positions[count] = base + static_cast<uint32_t>(i);
    values[count] = s;
    count += std::fabs(s) >= threshold ? 1 : 0;
  }
  if (not_finite != 0) *finite = false;
  return count;
}

}  // namespace

namespace internal {

int64_t PassChunk(const PassArgs& args, float threshold, uint32_t base,
                  uint32_t* positions, float* values, bool* finite) {
  switch (args.op) {
    case PassOp::kScan:
      return Loop<PassOp::kScan>(args, threshold, base, positions, values,
                                 finite);
    case PassOp::kDifference:
      return Loop<PassOp::kDifference>(args, threshold, base, positions, values,
                                       finite);
    case PassOp::kFeedback:
      return Loop<PassOp::kFeedback>(args, threshold, base, positions, values,
                                     finite);
    case PassOp::kPlain:
      return Loop<PassOp::kPlain>(args, threshold, base, positions, values,
                                  finite);
    case PassOp::kNesterov:
      return Loop<PassOp::kNesterov>(args, threshold, base, positions, values,
                                     finite);
  }
  return 0;
}

}  // namespace internal

std::vector<std::string> PassTargets() { return {"portable"}; }

bool UsePassTargetForTest(absl::string_view name) {
  return name.empty() || name == "portable";
}

}  // namespace rivulet
