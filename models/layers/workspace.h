// Memory of activations and their gradients, kept from step to step. Networks
// for several batch sizes share one workspace, since only one is in use at a
// time: each plans its slots, and the workspace is as large as the largest
// plan.
//
//   WorkspacePlan plan;
//   const WorkspaceSlot y = plan.Add(size);
//   workspace.Reserve(plan.size());
//   Run(workspace.at(y));

#ifndef RIVULET_MODELS_LAYERS_WORKSPACE_H_
#define RIVULET_MODELS_LAYERS_WORKSPACE_H_

#include <cstdint>

#include "models/tensor/tensor.h"

namespace rivulet {

// Where a buffer begins, in elements.
struct WorkspaceSlot {
  int64_t offset = 0;
};

class WorkspacePlan {
 public:
  WorkspaceSlot Add(int64_t elements) {
    constexpr int64_t kLine = AlignedBuffer<float>::kAlignment / sizeof(float);
    const WorkspaceSlot slot{size_};
    size_ += (elements + kLine - 1) / kLine * kLine;
    return slot;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

// Thread-compatible.
class Workspace {
 public:
  // Makes room for a plan of `elements`. If it must grow, contents are lost and
  // pointers from at() end.
  void Reserve(int64_t elements) {
    if (elements > data_.size()) {
      data_ = AlignedBuffer<float>();  // free first: two would not fit
      data_ = AlignedBuffer<float>(elements);
    }
  }
  float* at(WorkspaceSlot slot) { return data_.data() + slot.offset; }

 private:
  AlignedBuffer<float> data_;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_LAYERS_WORKSPACE_H_
