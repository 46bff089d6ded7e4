// A multilayer perceptron on flattened images: linear layers fc1, fc2, ... with
// ReLUs between.

#ifndef RIVULET_MODELS_MLP_H_
#define RIVULET_MODELS_MLP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "models/layers/network.h"

namespace rivulet {

// `options` passed BuildManifest with name "mlp"; `context.parameters` has that
// manifest. Errors: those of the backend.
absl::StatusOr<std::unique_ptr<Network>> MakeMlp(const ModelOptions& options,
                                                 int64_t batch,
                                                 const LayerContext& context);

}  // namespace rivulet

#endif  // RIVULET_MODELS_MLP_H_
