#include "compression/pass.h"

#include <algorithm>
#include <array>

namespace rivulet {
namespace {

// Below this many elements a thread's start costs more than it saves.
constexpr int64_t kMinElementsOfThread = int64_t{1} << 15;

template <typename T>
T* Advance(T* pointer, int64_t elements) {
  return pointer == nullptr ? nullptr : pointer + elements;
}

// Elements [begin, end).
bool Sweep(const PassArgs& args, int64_t begin, int64_t end, float threshold,
           Candidates* found) {
  // Chunks keep what one finds in small buffers, so that no list of args.size
  // elements is ever allocated for a few hits.
  std::array<uint32_t, internal::kPassChunk> positions;
  std::array<float, internal::kPassChunk> values;
  for (int64_t at = begin; at < end; at += internal::kPassChunk) {
    PassArgs chunk = args;
    chunk.size = std::min(internal::kPassChunk, end - at);
    chunk.g = Advance(args.g, at);
    chunk.w = Advance(args.w, at);
    chunk.u = Advance(args.u, at);
    chunk.v = Advance(args.v, at);
    chunk.u_out = Advance(args.u_out, at);
    chunk.v_out = Advance(args.v_out, at);
    bool finite = true;
    const int64_t count =
        internal::PassChunk(chunk, threshold, static_cast<uint32_t>(at),
                            positions.data(), values.data(), &finite);
    if (!finite) return false;
    found->positions.insert(found->positions.end(), positions.begin(),
                            positions.begin() + count);
    found->values.insert(found->values.end(), values.begin(),
                         values.begin() + count);
  }
  return true;
}

void Append(const Candidates& part, Candidates* found) {
  found->positions.insert(found->positions.end(), part.positions.begin(),
                          part.positions.end());
  found->values.insert(found->values.end(), part.values.begin(),
                       part.values.end());
}

}  // namespace

bool RunPass(const PassArgs& args, float threshold, Candidates* found,
             int threads) {
  const int parts = static_cast<int>(
      std::min<int64_t>(threads, args.size / kMinElementsOfThread));
  if (parts <= 1) return Sweep(args, 0, args.size, threshold, found);

  // Whole chunks a part; what they find is put together in order.
  const int64_t chunks =
      (args.size + internal::kPassChunk - 1) / internal::kPassChunk;
  std::vector<Candidates> found_in(static_cast<size_t>(parts));
  bool finite = true;
#pragma omp parallel for schedule(static, 1) num_threads(parts) \
    reduction(&& : finite)
  for (int p = 0; p < parts; ++p) {
    const int64_t begin = chunks * p / parts * internal::kPassChunk;
    const int64_t end =
        std::min(args.size, chunks * (p + 1) / parts * internal::kPassChunk);
    finite =
        Sweep(args, begin, end, threshold, &found_in[static_cast<size_t>(p)]) &&
        finite;
  }
  if (!finite) return false;
  for (const Candidates& part : found_in) Append(part, found);
  return true;
}

}  // namespace rivulet
