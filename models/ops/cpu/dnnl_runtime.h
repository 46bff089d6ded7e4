// What the oneDNN operations share: engine, stream, scratch memory, layouts,
// and the one place where the library's exceptions are caught.

#ifndef RIVULET_MODELS_OPS_CPU_DNNL_RUNTIME_H_
#define RIVULET_MODELS_OPS_CPU_DNNL_RUNTIME_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "models/tensor/tensor.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace rivulet::cpu {

// Runs `make`, a function that returns a value, and turns an exception of
// oneDNN into Unimplemented or Internal that names `what`.
template <typename Make>
auto CatchDnnl(absl::string_view what, const Make& make)
    -> absl::StatusOr<decltype(make())> {
  try {
    return make();
  } catch (const dnnl::error& e) {
    const auto code = e.status == dnnl_unimplemented
                          ? absl::StatusCode::kUnimplemented
                          : absl::StatusCode::kInternal;
    return absl::Status(code, absl::StrCat(what, ": oneDNN: ", e.what()));
  }
}

// A primitive with what its execution needs. Empty until made.
struct CompiledPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
};

// Thread-compatible, as the backend that owns it.
class DnnlRuntime {
 public:
  struct Argument {
    int index;                       // DNNL_ARG_...
    const dnnl::memory::desc& desc;  // alive during the call
    const void*
        data;  // written only where the primitive writes; null: left out
  };

  static absl::StatusOr<std::unique_ptr<DnnlRuntime>> Create(int threads);

  DnnlRuntime(const DnnlRuntime&) = delete;
  DnnlRuntime& operator=(const DnnlRuntime&) = delete;

  int threads() const { return threads_; }
  const dnnl::engine& engine() const { return engine_; }
  // Channels of a block, chosen by what the processor's convolutions prefer: 16
  // with AVX-512, 8 with AVX2, else 1 (plain).
  int64_t channel_block() const { return channel_block_; }

  // May throw dnnl::error, as all of oneDNN's constructors.
  dnnl::memory::desc ImageDesc(const ActivationShape& shape) const;
  // Attributes of every primitive: scratch memory is ours, so that a primitive
  // made in one thread can run in another.
  static dnnl::primitive_attr Attributes();
  template <typename PrimitiveDesc>
  CompiledPrimitive Compile(const PrimitiveDesc& pd) {
    CompiledPrimitive result;
    result.scratchpad = pd.scratchpad_desc();
    result.primitive = dnnl::primitive(pd.get());
    ReserveScratch(static_cast<int64_t>(result.scratchpad.get_size()));
    return result;
  }
  CompiledPrimitive CompileReorder(const dnnl::memory::desc& from,
                                   const dnnl::memory::desc& to);

  // Runs to completion in the calling thread's OpenMP team. A failure is a bug
  // of ours, since the primitive was made for these shapes: it aborts.
  void Run(const CompiledPrimitive& primitive,
           std::initializer_list<Argument> arguments);

 private:
  DnnlRuntime(int threads, int64_t channel_block, dnnl::engine engine);
  void ReserveScratch(int64_t bytes);

  const int threads_;
  const int64_t channel_block_;
  const dnnl::engine engine_;
  const dnnl::stream stream_;
  AlignedBuffer<char> scratch_;
};

}  // namespace rivulet::cpu

#endif  // RIVULET_MODELS_OPS_CPU_DNNL_RUNTIME_H_
