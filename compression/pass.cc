#include "compression/pass.h"

#include <algorithm>
#include <array>

namespace rivulet {
namespace {

template <typename T>
T* Advance(T* pointer, int64_t elements) {
  return pointer == nullptr ? nullptr : pointer + elements;
}

}  // namespace

bool RunPass(const PassArgs& args, float threshold,
             std::vector<uint32_t>* positions) {
  // Chunks keep the positions of one in a small buffer, so that no list of
  // args.size positions is ever allocated for a few hits.
  std::array<uint32_t, internal::kPassChunk> found;
  for (int64_t begin = 0; begin < args.size; begin += internal::kPassChunk) {
    PassArgs chunk = args;
    chunk.size = std::min(internal::kPassChunk, args.size - begin);
    chunk.g = Advance(args.g, begin);
    chunk.u = Advance(args.u, begin);
    chunk.v = Advance(args.v, begin);
    chunk.u_out = Advance(args.u_out, begin);
    chunk.v_out = Advance(args.v_out, begin);
    chunk.s_out = Advance(args.s_out, begin);
    bool finite = true;
    const int64_t count = internal::PassChunk(
        chunk, threshold, static_cast<uint32_t>(begin), found.data(), &finite);
    if (!finite) return false;
    positions->insert(positions->end(), found.begin(), found.begin() + count);
  }
  return true;
}

void AppendAtLeast(absl::Span<const float> values, float threshold,
                   std::vector<uint32_t>* positions) {
  PassArgs args;
  args.size = static_cast<int64_t>(values.size());
  args.g = values.data();
  RunPass(args, threshold, positions);
}

}  // namespace rivulet
