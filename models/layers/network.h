// A model's computation for one batch size, and what its layers share.

#ifndef RIVULET_MODELS_LAYERS_NETWORK_H_
#define RIVULET_MODELS_LAYERS_NETWORK_H_

#include <cstdint>
#include <functional>

#include "models/layers/parameters.h"
#include "models/layers/workspace.h"
#include "models/ops/backend.h"

namespace rivulet {

// Called with a parameter's number when its gradient is final.
using ReadyCallback = std::function<void(int)>;

// What a layer is made from. All three are borrowed and outlive the layer;
// `plan` is used while the layer is made only.
struct LayerContext {
  Backend<float>& backend;
  Parameters& parameters;
  Workspace& workspace;
  WorkspacePlan& plan;
};

// Thread-compatible; all networks of a model are used by one thread at a time.
class Network {
 public:
  virtual ~Network() = default;

  // images: plain [batch, channels, height, width]. Returns the logits, plain
  // [batch, classes], writable, in the workspace until the next pass. Forward
  // trains (batch statistics, recorded in Parameters); Evaluate uses the
  // running statistics.
  virtual float* Forward(const float* images) = 0;
  virtual float* Evaluate(const float* images) = 0;

  // The backward pass of the last Forward, given the gradient of its logits.
  // Writes all gradients of Parameters and announces each, last first.
  virtual void Backward(const float* images, const float* logits_gradient,
                        const ReadyCallback& ready) = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_LAYERS_NETWORK_H_
