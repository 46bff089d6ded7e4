// The fast operations' factories, used by MakeCpuBackend: oneDNN primitives,
// and loops of ours where it has none (group norm, the shortcut) or where one
// pass over memory can do the work of two (add + ReLU). Images have their
// channels in blocks of runtime.channel_block(). The specs have been validated.

#ifndef RIVULET_MODELS_OPS_CPU_CPU_OPS_H_
#define RIVULET_MODELS_OPS_CPU_CPU_OPS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "models/ops/cpu/dnnl_runtime.h"
#include "models/ops/ops.h"

namespace rivulet::cpu {

// `runtime` outlives the operation.
absl::StatusOr<std::unique_ptr<Convolution<float>>> MakeConvolution(
    DnnlRuntime& runtime, const ConvolutionSpec& spec);
absl::StatusOr<std::unique_ptr<Normalization<float>>> MakeBatchNorm(
    DnnlRuntime& runtime, const NormalizationSpec& spec);
absl::StatusOr<std::unique_ptr<Linear<float>>> MakeLinear(
    DnnlRuntime& runtime, const LinearSpec& spec);
absl::StatusOr<std::unique_ptr<GlobalAveragePool<float>>> MakePool(
    DnnlRuntime& runtime, const ActivationShape& shape);

std::unique_ptr<Normalization<float>> MakeGroupNorm(
    const NormalizationSpec& spec, int64_t channel_block, int threads);
std::unique_ptr<Shortcut<float>> MakeShortcut(const ShortcutSpec& spec,
                                              int64_t channel_block,
                                              int threads);
std::unique_ptr<Elementwise<float>> MakeElementwise(int threads);

}  // namespace rivulet::cpu

#endif  // RIVULET_MODELS_OPS_CPU_CPU_OPS_H_
