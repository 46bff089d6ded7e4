// The sweep over memory at the heart of compression: what a step's gradient
// does to momentum and residual, the check for numbers that are not finite, and
// the compaction of the elements above a threshold, in one go.
//
// Vectorized with Highway, for the best instruction set of the processor at run
// time (RIVULET_HIGHWAY=ON), or portable. All targets give the same bits: each
// element is computed by the same roundings, with no fused multiply-add. So do
// any number of threads.
//
// Memory traffic is the bound of a tensor that no cache holds. Bytes an
// element, each array read or written once:
//
//   kFeedback           12   reads g, v; writes v' over g
//   kPlain, kNesterov   20   reads g, u, v; writes u' over g and, past the
//                            cache, v'
//   kDifference          8   reads g, v
//   kScan                4   reads g
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_PASS_H_
#define RIVULET_COMPRESSION_PASS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace rivulet {

// What a sweep computes for each element. x is the step's gradient,
// x = scale * g, or x = scale * g + decay * w where w is given.
enum class PassOp {
  kScan,        // s = g
  kDifference,  // s = g - v
  kFeedback,    // v' = v + x;   s = v'
  kPlain,       // u' = m u + x,   v' = v + u';        s = v' + compensation u'
  kNesterov,    // u' = m (u + x), v' = v + (u' + x);  s = v' + compensation u'
};              // (s = v' in these two where compensation is 0)

// Pointers to `size` elements each, borrowed for the call; those that `op` does
// not name are ignored. An output may be an input, or overlaps nothing.
struct PassArgs {
  PassOp op = PassOp::kScan;
  int64_t size = 0;
  const float* g = nullptr;
  const float* w = nullptr;  // may be null: no decay
  const float* u = nullptr;
  const float* v = nullptr;
  float* u_out = nullptr;
  float* v_out = nullptr;
  float scale = 1;
  float decay = 0;
  float momentum = 0;
  float compensation = 0;
  // Writes v_out past the caches, which saves reading it first where it is
  // larger than they are. It must then be aligned to 64 bytes.
  bool stream_v = false;
};

// Elements and their positions, increasing.
struct Candidates {
  std::vector<uint32_t> positions;
  std::vector<float> values;

  int64_t size() const { return static_cast<int64_t>(positions.size()); }
  void clear() {
    positions.clear();
    values.clear();
  }
};

// Does the sweep and appends the elements with |s| >= threshold (infinity:
// none) to *found. False when an s is not finite, which covers every input and
// output that is not; outputs and *found are then unspecified. A long sweep is
// divided among up to `threads` threads of the calling thread's OpenMP team.
bool RunPass(const PassArgs& args, float threshold, Candidates* found,
             int threads = 1);

// Names of the instruction sets that this build and processor have, best first;
// {"portable"} without Highway.
std::vector<std::string> PassTargets();
// Makes RunPass use one of PassTargets(), for tests; an empty name goes back to
// the best. Not thread-safe. False for an unknown name.
bool UsePassTargetForTest(absl::string_view name);

namespace internal {

// A sweep is done in chunks of this many elements. PassChunk's args.size is at
// most that; it writes the elements found, positions each plus `base`, of which
// there may be args.size, returns their number and clears *finite when an s is
// not.
inline constexpr int64_t kPassChunk = 8192;
int64_t PassChunk(const PassArgs& args, float threshold, uint32_t base,
                  uint32_t* positions, float* values, bool* finite);

}  // namespace internal
}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_PASS_H_
