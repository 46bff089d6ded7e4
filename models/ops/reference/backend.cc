#include "models/ops/backend.h"

#include <string>

#include "common/base/status_macros.h"
#include "models/ops/reference/reference_ops.h"

namespace rivulet {
namespace {

template <typename T>
class ReferenceBackend final : public Backend<T> {
 public:
  std::string name() const override { return "reference"; }
  int64_t channel_block() const override { return 1; }
  void BindThread() override {}

  absl::StatusOr<std::unique_ptr<Convolution<T>>> MakeConvolution(
      const ConvolutionSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return reference::MakeConvolution<T>(spec);
  }
  absl::StatusOr<std::unique_ptr<Normalization<T>>> MakeNormalization(
      const NormalizationSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return reference::MakeNormalization<T>(spec);
  }
  absl::StatusOr<std::unique_ptr<Linear<T>>> MakeLinear(
      const LinearSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return reference::MakeLinear<T>(spec);
  }
  absl::StatusOr<std::unique_ptr<GlobalAveragePool<T>>> MakePool(
      const ActivationShape& shape) override {
    RV_RETURN_IF_ERROR(ValidatePoolShape(shape));
    return reference::MakePool<T>(shape);
  }
  absl::StatusOr<std::unique_ptr<Shortcut<T>>> MakeShortcut(
      const ShortcutSpec& spec) override {
    RV_RETURN_IF_ERROR(spec.Validate());
    return reference::MakeShortcut<T>(spec);
  }
  Elementwise<T>& elementwise() override { return *elementwise_; }

 private:
  const std::unique_ptr<Elementwise<T>> elementwise_ =
      reference::MakeElementwise<T>();
};

}  // namespace

template <typename T>
std::unique_ptr<Backend<T>> MakeReferenceBackend() {
  return std::make_unique<ReferenceBackend<T>>();
}

template std::unique_ptr<Backend<float>> MakeReferenceBackend<float>();
template std::unique_ptr<Backend<double>> MakeReferenceBackend<double>();

}  // namespace rivulet
