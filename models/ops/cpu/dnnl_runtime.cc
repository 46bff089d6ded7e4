#include "models/ops/cpu/dnnl_runtime.h"

#include <unordered_map>

#include "common/base/check.h"

namespace rivulet::cpu {
namespace {

int64_t PreferredBlock() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return 8;
    case dnnl::cpu_isa::avx512_mic:
    case dnnl::cpu_isa::avx512_mic_4ops:
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
      return 16;
    default:  // without AVX2 only products of plain matrices are fast
      return 1;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DnnlRuntime>> DnnlRuntime::Create(int threads) {
  if (threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("CPU backend: threads is ", threads, ", allowed: >= 1"));
  }
  return CatchDnnl("CPU backend", [&] {
    return std::unique_ptr<DnnlRuntime>(new DnnlRuntime(
        threads, PreferredBlock(), dnnl::engine(dnnl::engine::kind::cpu, 0)));
  });
}

DnnlRuntime::DnnlRuntime(int threads, int64_t channel_block,
                         dnnl::engine engine)
    : threads_(threads),
      channel_block_(channel_block),
      engine_(std::move(engine)),
      stream_(engine_) {}

dnnl::memory::desc DnnlRuntime::ImageDesc(const ActivationShape& shape) const {
  using Tag = dnnl::memory::format_tag;
  const Tag tag = channel_block_ == 16  ? Tag::nChw16c
                  : channel_block_ == 8 ? Tag::nChw8c
                                        : Tag::nchw;
  return {
      {shape.n, shape.c, shape.h, shape.w}, dnnl::memory::data_type::f32, tag};
}

dnnl::primitive_attr DnnlRuntime::Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

CompiledPrimitive DnnlRuntime::CompileReorder(const dnnl::memory::desc& from,
                                              const dnnl::memory::desc& to) {
  return Compile(
      dnnl::reorder::primitive_desc(engine_, from, engine_, to, Attributes()));
}

void DnnlRuntime::ReserveScratch(int64_t bytes) {
  if (bytes > scratch_.size()) scratch_ = AlignedBuffer<char>(bytes);
}

void DnnlRuntime::Run(const CompiledPrimitive& primitive,
                      std::initializer_list<Argument> arguments) {
  try {
    std::unordered_map<int, dnnl::memory> map;
    for (const Argument& a : arguments) {
      if (a.data == nullptr) continue;  // an optional one that is not used
      map.emplace(a.index,
                  dnnl::memory(a.desc, engine_, const_cast<void*>(a.data)));
    }
    map.emplace(DNNL_ARG_SCRATCHPAD,
                dnnl::memory(primitive.scratchpad, engine_, scratch_.data()));
    primitive.primitive.execute(stream_, map);
  } catch (const dnnl::error& e) {
    RV_CHECK(false) << "oneDNN execution failed: " << e.what();
  }
}

}  // namespace rivulet::cpu
