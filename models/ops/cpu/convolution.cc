#include <utility>

#include "models/ops/cpu/cpu_ops.h"

namespace rivulet::cpu {
namespace {

using dnnl::memory;

// Weights in the format that one pass of the convolution wants.
struct PackedWeights {
  memory::desc desc;
  AlignedBuffer<float> data;
  CompiledPrimitive reorder;
};

class CpuConvolution final : public Convolution<float> {
 public:
  // May throw dnnl::error.
  CpuConvolution(DnnlRuntime& runtime, const ConvolutionSpec& spec)
      : runtime_(runtime), spec_(spec) {
    const ActivationShape in = spec.input;
    x_ = spec.plain_input
             ? memory::desc({in.n, in.c, in.h, in.w}, memory::data_type::f32,
                            memory::format_tag::nchw)
             : runtime.ImageDesc(in);
    y_ = runtime.ImageDesc(spec.Output());
    const memory::dims weight_dims = {spec.out_channels, in.c, spec.kernel,
                                      spec.kernel};
    plain_ = memory::desc(weight_dims, memory::data_type::f32,
                          memory::format_tag::oihw);
    any_ = memory::desc(weight_dims, memory::data_type::f32,
                        memory::format_tag::any);
    Compile();
  }

  void SetWeights(const float* weight) override {
    Pack(weight, forward_weights_);
    if (spec_.needs_input_gradient) Pack(weight, backward_weights_);
  }

  void Forward(const float* x, float* y) override {
    runtime_.Run(forward_, {{DNNL_ARG_SRC, x_, x},
                            {DNNL_ARG_WEIGHTS, forward_weights_.desc,
                             forward_weights_.data.data()},
                            {DNNL_ARG_DST, y_, y}});
  }

  void BackwardData(const float* dy, float* dx) override {
    runtime_.Run(backward_data_, {{DNNL_ARG_DIFF_DST, y_, dy},
                                  {DNNL_ARG_WEIGHTS, backward_weights_.desc,
                                   backward_weights_.data.data()},
                                  {DNNL_ARG_DIFF_SRC, x_, dx}});
  }

  void BackwardWeights(const float* x, const float* dy,
                       float* dweight) override {
    runtime_.Run(weights_gradient_,
                 {{DNNL_ARG_SRC, x_, x},
                  {DNNL_ARG_DIFF_DST, y_, dy},
                  {DNNL_ARG_DIFF_WEIGHTS, packed_gradient_.desc,
                   packed_gradient_.data.data()}});
    runtime_.Run(
        packed_gradient_.reorder,
        {{DNNL_ARG_FROM, packed_gradient_.desc, packed_gradient_.data.data()},
         {DNNL_ARG_TO, plain_, dweight}});
  }

 private:
  void Compile() {
    const memory::dims strides = {spec_.stride, spec_.stride};
    const memory::dims padding = {spec_.padding, spec_.padding};
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const auto attributes = DnnlRuntime::Attributes();
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, x_, any_, y_, strides,
         padding, padding},
        attributes, runtime_.engine());
    forward_ = runtime_.Compile(forward);
    PreparePacking(forward.weights_desc(), forward_weights_);

    if (spec_.needs_input_gradient) {
      const dnnl::convolution_backward_data::primitive_desc backward(
          {algorithm, x_, any_, y_, strides, padding, padding}, attributes,
          runtime_.engine(), forward);
      backward_data_ = runtime_.Compile(backward);
      PreparePacking(backward.weights_desc(), backward_weights_);
    }

    const dnnl::convolution_backward_weights::primitive_desc gradient(
        {algorithm, x_, any_, y_, strides, padding, padding}, attributes,
        runtime_.engine(), forward);
    weights_gradient_ = runtime_.Compile(gradient);
    packed_gradient_.desc = gradient.diff_weights_desc();
    packed_gradient_.data = Allocate(packed_gradient_.desc);
    packed_gradient_.reorder =
        runtime_.CompileReorder(packed_gradient_.desc, plain_);
  }

  static AlignedBuffer<float> Allocate(const memory::desc& desc) {
    return AlignedBuffer<float>(
        static_cast<int64_t>(desc.get_size() / sizeof(float)));
  }

  void PreparePacking(const memory::desc& desc, PackedWeights& weights) {
    weights.desc = desc;
    weights.data = Allocate(desc);
    weights.reorder = runtime_.CompileReorder(plain_, desc);
  }

  void Pack(const float* weight, PackedWeights& weights) {
    runtime_.Run(weights.reorder,
                 {{DNNL_ARG_FROM, plain_, weight},
                  {DNNL_ARG_TO, weights.desc, weights.data.data()}});
  }

  DnnlRuntime& runtime_;
  const ConvolutionSpec spec_;
  memory::desc x_, y_, plain_, any_;
  CompiledPrimitive forward_, backward_data_, weights_gradient_;
  PackedWeights forward_weights_, backward_weights_, packed_gradient_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution<float>>> MakeConvolution(
    DnnlRuntime& runtime, const ConvolutionSpec& spec) {
  return CatchDnnl("convolution", [&] {
    return std::unique_ptr<Convolution<float>>(
        std::make_unique<CpuConvolution>(runtime, spec));
  });
}

}  // namespace rivulet::cpu
