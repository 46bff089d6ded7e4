#include <utility>

#include "models/ops/cpu/cpu_ops.h"

namespace rivulet::cpu {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;

class CpuBatchNorm final : public Normalization<float> {
 public:
  // May throw dnnl::error.
  CpuBatchNorm(DnnlRuntime& runtime, const NormalizationSpec& spec)
      : runtime_(runtime),
        relu_(spec.relu),
        image_(runtime.ImageDesc(spec.shape)),
        channels_({spec.shape.c}, memory::data_type::f32,
                  memory::format_tag::a),
        mean_(spec.shape.c),
        variance_(spec.shape.c) {
    auto flags =
        normalization_flags::use_scale | normalization_flags::use_shift;
    if (relu_) flags |= normalization_flags::fuse_norm_relu;
    const float epsilon = static_cast<float>(spec.epsilon);
    const auto attributes = DnnlRuntime::Attributes();

    const dnnl::batch_normalization_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, image_, epsilon, flags}, attributes,
        runtime.engine());
    forward_ = runtime.Compile(forward);
    if (relu_) {
      workspace_desc_ = forward.workspace_desc();
      workspace_ =
          AlignedBuffer<char>(static_cast<int64_t>(workspace_desc_.get_size()));
    }
    const dnnl::batch_normalization_backward::primitive_desc backward(
        {dnnl::prop_kind::backward, image_, image_, epsilon, flags}, attributes,
        runtime.engine(), forward);
    backward_ = runtime.Compile(backward);
    evaluate_ =
        runtime.Compile(dnnl::batch_normalization_forward::primitive_desc(
            {dnnl::prop_kind::forward_inference, image_, epsilon,
             flags | normalization_flags::use_global_stats},
            attributes, runtime.engine()));
  }

  void Forward(const float* x, const float* scale, const float* shift,
               float* y) override {
    runtime_.Run(forward_,
                 {{DNNL_ARG_SRC, image_, x},
                  {DNNL_ARG_SCALE, channels_, scale},
                  {DNNL_ARG_SHIFT, channels_, shift},
                  {DNNL_ARG_DST, image_, y},
                  {DNNL_ARG_MEAN, channels_, mean_.data()},
                  {DNNL_ARG_VARIANCE, channels_, variance_.data()},
                  {DNNL_ARG_WORKSPACE, workspace_desc_, workspace_.data()}});
  }

  void Backward(const float* x, const float* /*y*/, const float* scale,
                const float* dy, float* dx, float* dscale,
                float* dshift) override {
    runtime_.Run(backward_,
                 {{DNNL_ARG_SRC, image_, x},
                  {DNNL_ARG_MEAN, channels_, mean_.data()},
                  {DNNL_ARG_VARIANCE, channels_, variance_.data()},
                  {DNNL_ARG_SCALE, channels_, scale},
                  // Not read, but oneDNN 2.6 counts it among the inputs.
                  {DNNL_ARG_SHIFT, channels_, scale},
                  {DNNL_ARG_WORKSPACE, workspace_desc_, workspace_.data()},
                  {DNNL_ARG_DIFF_DST, image_, dy},
                  {DNNL_ARG_DIFF_SRC, image_, dx},
                  {DNNL_ARG_DIFF_SCALE, channels_, dscale},
                  {DNNL_ARG_DIFF_SHIFT, channels_, dshift}});
  }

  void Evaluate(const float* x, const float* scale, const float* shift,
                const float* running_mean, const float* running_var,
                float* y) override {
    runtime_.Run(evaluate_, {{DNNL_ARG_SRC, image_, x},
                             {DNNL_ARG_MEAN, channels_, running_mean},
                             {DNNL_ARG_VARIANCE, channels_, running_var},
                             {DNNL_ARG_SCALE, channels_, scale},
                             {DNNL_ARG_SHIFT, channels_, shift},
                             {DNNL_ARG_DST, image_, y}});
  }

  absl::Span<const float> mean() const override { return mean_.span(); }
  absl::Span<const float> variance() const override { return variance_.span(); }

 private:
  DnnlRuntime& runtime_;
  const bool relu_;
  const memory::desc image_;
  const memory::desc channels_;
  CompiledPrimitive forward_, backward_, evaluate_;
  memory::desc workspace_desc_;  // a bit per element: where the ReLU passed
  AlignedBuffer<char> workspace_;
  AlignedBuffer<float> mean_, variance_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Normalization<float>>> MakeBatchNorm(
    DnnlRuntime& runtime, const NormalizationSpec& spec) {
  return CatchDnnl("batch norm", [&] {
    return std::unique_ptr<Normalization<float>>(
        std::make_unique<CpuBatchNorm>(runtime, spec));
  });
}

}  // namespace rivulet::cpu
