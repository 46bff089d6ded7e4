#include <algorithm>

#include "models/ops/cpu/cpu_ops.h"

namespace rivulet::cpu {
namespace {

using dnnl::memory;

// oneDNN pools images to images of one pixel. With channels that fill their
// blocks those are the plain [n, c] matrix; otherwise rows are copied.
class CpuPool final : public GlobalAveragePool<float> {
 public:
  // May throw dnnl::error.
  CpuPool(DnnlRuntime& runtime, const ActivationShape& shape)
      : runtime_(runtime),
        shape_(shape),
        row_((shape.c + runtime.channel_block() - 1) / runtime.channel_block() *
             runtime.channel_block()),
        image_(runtime.ImageDesc(shape)),
        pooled_(runtime.ImageDesc({shape.n, shape.c, 1, 1})),
        padded_(row_ == shape.c ? 0 : shape.n * row_) {
    const auto algorithm = dnnl::algorithm::pooling_avg_exclude_padding;
    const memory::dims kernel = {shape.h, shape.w};
    const memory::dims stride = {1, 1};
    const memory::dims zero = {0, 0};
    const auto attributes = DnnlRuntime::Attributes();
    const dnnl::pooling_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, image_, pooled_, stride,
         kernel, zero, zero},
        attributes, runtime.engine());
    forward_ = runtime.Compile(forward);
    backward_ = runtime.Compile(dnnl::pooling_backward::primitive_desc(
        {algorithm, image_, pooled_, stride, kernel, zero, zero}, attributes,
        runtime.engine(), forward));
  }

  void Forward(const float* x, float* y) override {
    float* out = padded() ? padded_.data() : y;
    runtime_.Run(forward_,
                 {{DNNL_ARG_SRC, image_, x}, {DNNL_ARG_DST, pooled_, out}});
    if (!padded()) return;
    for (int64_t n = 0; n < shape_.n; ++n) {
      std::copy_n(out + n * row_, shape_.c, y + n * shape_.c);
    }
  }

  void BackwardData(const float* dy, float* dx) override {
    const float* in = dy;
    if (padded()) {
      std::fill_n(padded_.data(), padded_.size(), 0.0f);
      for (int64_t n = 0; n < shape_.n; ++n) {
        std::copy_n(dy + n * shape_.c, shape_.c, padded_.data() + n * row_);
      }
      in = padded_.data();
    }
    runtime_.Run(backward_, {{DNNL_ARG_DIFF_DST, pooled_, in},
                             {DNNL_ARG_DIFF_SRC, image_, dx}});
  }

 private:
  bool padded() const { return padded_.size() > 0; }

  DnnlRuntime& runtime_;
  const ActivationShape shape_;
  const int64_t row_;  // elements of a padded row
  const memory::desc image_, pooled_;
  CompiledPrimitive forward_, backward_;
  AlignedBuffer<float> padded_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GlobalAveragePool<float>>> MakePool(
    DnnlRuntime& runtime, const ActivationShape& shape) {
  return CatchDnnl("pooling", [&] {
    return std::unique_ptr<GlobalAveragePool<float>>(
        std::make_unique<CpuPool>(runtime, shape));
  });
}

}  // namespace rivulet::cpu
