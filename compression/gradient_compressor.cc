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

// The elements that were sent lie far apart, mostly on pages of their own, and
// have left the caches: they are asked for so many ahead.
constexpr size_t kFetchAhead = 32;

// A tensor of so many elements does not stay in the caches between its steps.
constexpr int64_t kBeyondCaches = int64_t{1} << 20;

// Where a sweep that stopped met a number that is not finite: it writes the
// step's state over the gradient, chunk by chunk, and all of that before was.
absl::Status NotFinite(absl::Span<const float> over_gradient,
                       absl::Span<const float> next_v) {
  for (size_t i = 0; i < over_gradient.size(); ++i) {
    if (!std::isfinite(over_gradient[i]) || !std::isfinite(next_v[i])) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "gradient is not finite, or so large that the residual would not be: "
          "element %d of %d",
          i, over_gradient.size()));
    }
  }
  return absl::InvalidArgumentError(
      "gradient is finite but so large that what is sent would not be");
}

PassOp OpOf(MomentumForm form) {
  switch (form) {
    case MomentumForm::kNone:
      return PassOp::kFeedback;
    case MomentumForm::kPlain:
      return PassOp::kPlain;
    case MomentumForm::kNesterov:
      return PassOp::kNesterov;
  }
  return PassOp::kFeedback;
}

}  // namespace

absl::Status GradientCompressorOptions::Validate() const {
  if (!(momentum >= 0 && momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "momentum is %g; allowed: 0 up to, not including, 1", momentum));
  }
  RV_RETURN_IF_ERROR(CheckRange("compensation", compensation, 1));
  RV_RETURN_IF_ERROR(CheckRange("mask_max_density", mask_max_density, 1));
  if (!(gain > 0 && std::isfinite(gain))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("gain is %g; allowed: above 0", gain));
  }
  if (gain != 1 && form != MomentumForm::kNone) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "gain is %g with momentum; allowed: 1, or no momentum", gain));
  }
  if (threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("threads is %d; allowed: 1 or more", threads));
  }
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
  AlignedBuffer<float> u;  // none without momentum
  AlignedBuffer<float> v;
  Selector selector;
  // A step under way. Its u (without momentum: its v) is in *gradient, which is
  // null between steps.
  AlignedBuffer<float>* gradient = nullptr;
  AlignedBuffer<float>
      next_v;  // with momentum only; exists from the first step
  Selector next_selector;
  Candidates candidates;  // of the last step: kept for its memory

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
  if (state->has_momentum()) state->u = AlignedBuffer<float>(size);
  state->v = AlignedBuffer<float>(size);
  return std::unique_ptr<GradientCompressor>(
      new GradientCompressor(std::move(state)));
}

absl::Status GradientCompressor::Compress(const GradientInput& input,
                                          const TensorPlan& plan,
                                          CompressedTensor* out) {
  State& st = *state_;
  RV_CHECK(st.gradient == nullptr) << "Compress before Commit or Rollback";
  RV_CHECK(input.gradient != nullptr);
  RV_CHECK_EQ(input.gradient->size(), st.size);
  if (input.decay != 0) {
    RV_CHECK_EQ(static_cast<int64_t>(input.parameter.size()), st.size);
  }
  RV_RETURN_IF_ERROR(plan.Validate());

  const GradientCompressorOptions& options = st.options;
  const bool masked = st.has_momentum() && options.mask && !plan.dense() &&
                      plan.density <= options.mask_max_density;
  if (st.has_momentum() && st.next_v.size() == 0) {
    st.next_v = AlignedBuffer<float>(st.size);
  }
  const size_t size = input.gradient->span().size();
  float* const over_gradient = input.gradient->data();
  float* const next_v = st.has_momentum() ? st.next_v.data() : over_gradient;

  PassArgs args;
  args.op = OpOf(options.form);
  args.size = st.size;
  args.g = over_gradient;
  args.w = input.decay == 0 ? nullptr : input.parameter.data();
  args.u = st.u.data();
  args.v = st.v.data();
  args.u_out = over_gradient;
  args.v_out = next_v;
  args.scale = static_cast<float>(input.scale * options.gain);
  args.decay = static_cast<float>(input.decay * options.gain);
  args.momentum = static_cast<float>(options.momentum);
  args.compensation =
      masked ? static_cast<float>(options.compensation * options.momentum /
                                  (1.0 - options.momentum))
             : 0;
  args.stream_v = st.has_momentum() && st.size >= kBeyondCaches;
  st.next_selector = st.selector;
  st.candidates.clear();
  if (!RunPass(args, PassThreshold(plan, st.selector, st.size), &st.candidates,
               options.threads)) {
    return NotFinite({over_gradient, size}, {next_v, size});
  }

  const ValuesView s =
      args.compensation > 0
          ? ValuesView(next_v, over_gradient, args.compensation, st.size)
          : ValuesView(absl::MakeConstSpan(next_v, size));
  Reduce(s, plan, input.noise, &st.candidates, &st.next_selector, out);
  // Error feedback: the residual keeps what the receiver will not have got.
  if (plan.dense()) {
    for (int64_t i = 0; i < st.size; ++i) next_v[i] -= out->Decode(i);
  } else {
    const auto& [positions, sent] = st.candidates;
    for (size_t i = 0; i < positions.size(); ++i) {
      if (i + kFetchAhead < positions.size()) {
        const size_t next = positions[i + kFetchAhead];
        __builtin_prefetch(next_v + next, /*rw=*/1);
        if (masked) __builtin_prefetch(over_gradient + next, /*rw=*/1);
      }
      const size_t p = positions[i];
      next_v[p] = sent[i] - out->Decode(static_cast<int64_t>(i));
      if (masked) over_gradient[p] = 0;
    }
  }
  st.gradient = input.gradient;
  return absl::OkStatus();
}

void GradientCompressor::Commit() {
  State& st = *state_;
  RV_CHECK(st.gradient != nullptr) << "Commit without Compress";
  if (st.has_momentum()) {
    std::swap(st.u, *st.gradient);
    std::swap(st.v, st.next_v);
  } else {
    std::swap(st.v, *st.gradient);
  }
  st.selector = st.next_selector;
  st.gradient = nullptr;
}

void GradientCompressor::Rollback() {
  RV_CHECK(state_->gradient != nullptr) << "Rollback without Compress";
  state_->gradient = nullptr;
}

int64_t GradientCompressor::size() const { return state_->size; }

absl::Span<float> GradientCompressor::momentum() {
  RV_CHECK(state_->gradient == nullptr) << "a step is pending";
  return state_->u.span();
}

absl::Span<float> GradientCompressor::residual() {
  RV_CHECK(state_->gradient == nullptr) << "a step is pending";
  return state_->v.span();
}

SelectorState GradientCompressor::selector_state() const {
  RV_CHECK(state_->gradient == nullptr) << "a step is pending";
  return state_->selector.state();
}

void GradientCompressor::set_selector_state(const SelectorState& state) {
  RV_CHECK(state_->gradient == nullptr) << "a step is pending";
  state_->selector.set_state(state);
}

}  // namespace rivulet
