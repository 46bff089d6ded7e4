#include "models/ops/cpu/cpu_ops.h"

namespace rivulet::cpu {
namespace {

using dnnl::memory;

// Weights stay plain: these products are small beside the convolutions, and a
// reorder at every step would cost what a better layout gains.
class CpuLinear final : public Linear<float> {
 public:
  // May throw dnnl::error.
  CpuLinear(DnnlRuntime& runtime, const LinearSpec& spec)
      : runtime_(runtime),
        x_(Plain({spec.batch, spec.in})),
        y_(Plain({spec.batch, spec.out})),
        weight_(Plain({spec.out, spec.in})),
        bias_({spec.out}, memory::data_type::f32, memory::format_tag::a) {
    const auto attributes = DnnlRuntime::Attributes();
    const dnnl::inner_product_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, x_, weight_, bias_, y_}, attributes,
        runtime.engine());
    forward_ = runtime.Compile(forward);
    if (spec.needs_input_gradient) {
      backward_data_ =
          runtime.Compile(dnnl::inner_product_backward_data::primitive_desc(
              {x_, weight_, y_}, attributes, runtime.engine(), forward));
    }
    backward_weights_ =
        runtime.Compile(dnnl::inner_product_backward_weights::primitive_desc(
            {x_, weight_, bias_, y_}, attributes, runtime.engine(), forward));
  }

  void Forward(const float* x, const float* weight, const float* bias,
               float* y) override {
    runtime_.Run(forward_, {{DNNL_ARG_SRC, x_, x},
                            {DNNL_ARG_WEIGHTS, weight_, weight},
                            {DNNL_ARG_BIAS, bias_, bias},
                            {DNNL_ARG_DST, y_, y}});
  }

  void BackwardData(const float* dy, const float* weight, float* dx) override {
    runtime_.Run(backward_data_, {{DNNL_ARG_DIFF_DST, y_, dy},
                                  {DNNL_ARG_WEIGHTS, weight_, weight},
                                  {DNNL_ARG_DIFF_SRC, x_, dx}});
  }

  void BackwardWeights(const float* x, const float* dy, float* dweight,
                       float* dbias) override {
    runtime_.Run(backward_weights_, {{DNNL_ARG_SRC, x_, x},
                                     {DNNL_ARG_DIFF_DST, y_, dy},
                                     {DNNL_ARG_DIFF_WEIGHTS, weight_, dweight},
                                     {DNNL_ARG_DIFF_BIAS, bias_, dbias}});
  }

 private:
  static memory::desc Plain(const memory::dims& dims) {
    return {dims, memory::data_type::f32, memory::format_tag::ab};
  }

  DnnlRuntime& runtime_;
  const memory::desc x_, y_, weight_, bias_;
  CompiledPrimitive forward_, backward_data_, backward_weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Linear<float>>> MakeLinear(
    DnnlRuntime& runtime, const LinearSpec& spec) {
  return CatchDnnl("linear", [&] {
    return std::unique_ptr<Linear<float>>(
        std::make_unique<CpuLinear>(runtime, spec));
  });
}

}  // namespace rivulet::cpu
