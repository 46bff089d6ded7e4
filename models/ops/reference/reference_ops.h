// The reference operations' factories, used by MakeReferenceBackend. Images are
// plain [n, c, h, w]; every sum is taken in double, in index order. The specs
// have been validated. Thread-compatible.

#ifndef RIVULET_MODELS_OPS_REFERENCE_REFERENCE_OPS_H_
#define RIVULET_MODELS_OPS_REFERENCE_REFERENCE_OPS_H_

#include <memory>

#include "models/ops/ops.h"

namespace rivulet::reference {

template <typename T>
std::unique_ptr<Convolution<T>> MakeConvolution(const ConvolutionSpec& spec);
template <typename T>
std::unique_ptr<Normalization<T>> MakeNormalization(
    const NormalizationSpec& spec);
template <typename T>
std::unique_ptr<Linear<T>> MakeLinear(const LinearSpec& spec);
template <typename T>
std::unique_ptr<GlobalAveragePool<T>> MakePool(const ActivationShape& shape);
template <typename T>
std::unique_ptr<Shortcut<T>> MakeShortcut(const ShortcutSpec& spec);
template <typename T>
std::unique_ptr<Elementwise<T>> MakeElementwise();

}  // namespace rivulet::reference

#endif  // RIVULET_MODELS_OPS_REFERENCE_REFERENCE_OPS_H_
