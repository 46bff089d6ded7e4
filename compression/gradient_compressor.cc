#include "compression/gradient_compressor.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "compression/pass.h"
#include "compression/reduce.h"

namespace rivulet {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<uint32_t>::max();

absl::Status CheckRange(const char* name, double value, double max) {
  if (value >= 0 && value <= max) return absl::OkStatus();  // refuses NaN too
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g; allowed: 0 to %g", name, value, max));
}

// Why a pass met a number that is not finite.
absl::Status NotFinite(absl::Span<const float> gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!std::isfinite(gradient[i])) {
      return absl::InvalidArgumentError(
          absl::StrFormat("gradient is not finite: element %d of %d is %g", i,
                          gradient.size(), gradient[i]));
    }
  }
  return absl::InvalidArgumentError(
      "gradient is finite but so large that the residual would not be");
}

PassOp OpOf(MomentumForm form) {
  switch (form) {
    case MomentumForm::kNone:
      return PassOp::kNone;
    case MomentumForm::kPlain:
      return PassOp::kPlain;
    case MomentumForm::kNesterov:
      return PassOp::kNesterov;
  }
  return PassOp::kNone;
}

}  // namespace

absl::Status GradientCompressorOptions::Validate() const {
  if (!(momentum >= 0 && momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "momentum is %g; allowed: 0 up to, not including, 1", momentum));
  }
  RV_RETURN_IF_ERROR(CheckRange("compensation", compensation, 1));
  RV_RETURN_IF_ERROR(CheckRange("mask_max_density", mask_max_density, 1));
  if (compensation > 0 && !mask) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "compensation is %g, but without masking there is nothing to "
        "compensate; allowed: 0, or mask: true",
        compensation));
  }
  return absl::OkStatus();
}

struct GradientCompressor::State {
  GradientCompressorOptions options;
  int64_t size = 0;
  std::vector<float> u;
  std::vector<float> v;
  Selector selector;
  // What Commit makes of them. The buffers exist from the first step on; the
  // selector is copied at each.
  bool pending = false;
  std::vector<float> next_u;
  std::vector<float> next_v;
  Selector next_selector;
  std::vector<float> s;  // scratch, with compensation only

  bool has_momentum() const { return options.form != MomentumForm::kNone; }
};

GradientCompressor::GradientCompressor(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

GradientCompressor::~GradientCompressor() = default;

absl::StatusOr<std::unique_ptr<GradientCompressor>> GradientCompressor::Create(
    int64_t size, const GradientCompressorOptions& options) {
  RV_RETURN_IF_ERROR(options.Validate());
  if (size < 1 || size > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor has %d elements; allowed: 1 to %d (positions "
                        "have 32 bits)",
                        size, kMaxSize));
  }
  auto state = std::make_unique<State>();
  state->options = options;
  state->size = size;
  state->u.assign(static_cast<size_t>(size), 0.0f);
  state->v.assign(static_cast<size_t>(size), 0.0f);
  return std::unique_ptr<GradientCompressor>(
      new GradientCompressor(std::move(state)));
}

absl::Status GradientCompressor::Compress(absl::Span<const float> gradient,
                                          const TensorPlan& plan,
                                          CompressedTensor* out) {
  State& st = *state_;
  RV_CHECK(!st.pending) << "Compress before Commit or Rollback";
  RV_CHECK_EQ(static_cast<int64_t>(gradient.size()), st.size);
  RV_RETURN_IF_ERROR(plan.Validate());

  const GradientCompressorOptions& options = st.options;
  const bool masked = st.has_momentum() && options.mask && !plan.dense() &&
                      plan.density <= options.mask_max_density;
  const bool compensated = masked && options.compensation > 0;
  const size_t size = gradient.size();
  st.next_v.resize(size);
  if (st.has_momentum()) st.next_u.resize(size);
  if (compensated) st.s.resize(size);

  PassArgs args;
  args.op = OpOf(options.form);
  args.size = st.size;
  args.g = gradient.data();
  args.u = st.u.data();
  args.v = st.v.data();
  args.u_out = st.next_u.data();
  args.v_out = st.next_v.data();
  args.s_out = compensated ? st.s.data() : nullptr;
  args.momentum = static_cast<float>(options.momentum);
  args.compensation = static_cast<float>(
      options.compensation * options.momentum / (1.0 - options.momentum));
  st.next_selector = st.selector;
  const float threshold = PassThreshold(plan, st.selector, st.size);
  std::vector<uint32_t> candidates;
  if (!RunPass(args, threshold, &candidates)) return NotFinite(gradient);

  const absl::Span<const float> s = compensated ? st.s : st.next_v;
  Reduce(s, plan, std::move(candidates), &st.next_selector, out);
  // Error feedback: the residual keeps what the receiver will not have got.
  const int64_t count = out->count();
  for (int64_t i = 0; i < count; ++i) {
    const size_t p = out->Position(i);
    st.next_v[p] = s[p] - out->Decode(i);
    if (masked) st.next_u[p] = 0;
  }
  st.pending = true;
  return absl::OkStatus();
}

void GradientCompressor::Commit() {
  State& st = *state_;
  RV_CHECK(st.pending) << "Commit without Compress";
  if (st.has_momentum()) st.u.swap(st.next_u);
  st.v.swap(st.next_v);
  st.selector = st.next_selector;
  st.pending = false;
}

void GradientCompressor::Rollback() {
  RV_CHECK(state_->pending) << "Rollback without Compress";
  state_->pending = false;
}

int64_t GradientCompressor::size() const { return state_->size; }

absl::Span<float> GradientCompressor::momentum() {
  RV_CHECK(!state_->pending);
  return absl::MakeSpan(state_->u);
}

absl::Span<float> GradientCompressor::residual() {
  RV_CHECK(!state_->pending);
  return absl::MakeSpan(state_->v);
}

SelectorState GradientCompressor::selector_state() const {
  RV_CHECK(!state_->pending);
  return state_->selector.state();
}

void GradientCompressor::set_selector_state(const SelectorState& state) {
  RV_CHECK(!state_->pending);
  state_->selector.set_state(state);
}

}  // namespace rivulet
