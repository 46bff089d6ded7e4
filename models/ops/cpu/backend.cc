#include "models/ops/backend.h"

#include <omp.h>

#include <utility>

#include "common/base/status_macros.h"
#include "models/ops/cpu/cpu_ops.h"

namespace rivulet {
namespace {

class CpuBackend final : public Backend<float> {
 public:
  explicit CpuBackend(std::unique_ptr<cpu::DnnlRuntime> runtime)
      : runtime_(std::move(runtime)),
        elementwise_(cpu::MakeElementwise(runtime_->threads())) {}

  std::string name() const override { return "oneDNN"; }
  int64_t channel_block() const override { return runtime_->channel_block(); }
  // OpenMP keeps this number per thread, so that models in different threads of
  // one process do not meet.
  void BindThread() override { omp_set_num_threads(runtime_->threads()); }

  absl::StatusOr<std::unique_ptr<Convolution<float>>> MakeConvolution(
      const ConvolutionSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return cpu::MakeConvolution(*runtime_, spec);
  }
  absl::StatusOr<std::unique_ptr<Normalization<float>>> MakeNormalization(
      const NormalizationSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    if (spec.kind == NormalizationSpec::Kind::kGroup) {
      return cpu::MakeGroupNorm(spec, channel_block(), runtime_->threads());
    }
    return cpu::MakeBatchNorm(*runtime_, spec);
  }
  absl::StatusOr<std::unique_ptr<Linear<float>>> MakeLinear(
      const LinearSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return cpu::MakeLinear(*runtime_, spec);
  }
  absl::StatusOr<std::unique_ptr<GlobalAveragePool<float>>> MakePool(
      const ActivationShape& shape) override {
    RV_RETURN_IF_ERROR(ValidatePoolShape(shape));
    return cpu::MakePool(*runtime_, shape);
  }
  absl::StatusOr<std::unique_ptr<Shortcut<float>>> MakeShortcut(
      const ShortcutSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return cpu::MakeShortcut(spec, channel_block(), runtime_->threads());
  }
  Elementwise<float>& elementwise() override { return *elementwise_; }

 private:
  const std::unique_ptr<cpu::DnnlRuntime> runtime_;
  const std::unique_ptr<Elementwise<float>> elementwise_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend<float>>> MakeCpuBackend(int threads) {
  RV_ASSIGN_OR_RETURN(auto runtime, cpu::DnnlRuntime::Create(threads));
  return std::unique_ptr<Backend<float>>(
      std::make_unique<CpuBackend>(std::move(runtime)));
}

}  // namespace rivulet
