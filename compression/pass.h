// The sweep over memory at the heart of compression: momentum correction,
// accumulation, the check for numbers that are not finite, and the compaction
// of the positions above a threshold, in one go.
//
// Vectorized with Highway, for the best instruction set of the processor at run
// time (RIVULET_HIGHWAY=ON), or portable. All targets give the same bits: each
// element is computed by the same roundings, with no fused multiply-add.
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_PASS_H_
#define RIVULET_COMPRESSION_PASS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rivulet {

// What a sweep computes for each element, with g, u, v its inputs:
enum class PassOp {
  kScan,        // s = g
  kDifference,  // s = g - v                               -> s_out
  kNone,        // v' = v + g                              -> v_out; s = v'
  kPlain,       // u' = m u + g,   v' = v + u'             -> u_out, v_out
  kNesterov,    // u' = m (u + g), v' = v + (u' + g)       -> u_out, v_out
};              // the last two: s = v' + compensation * u' -> s_out if given,
                // s = v' if s_out is null

// Pointers to `size` elements each, borrowed for the call. Outputs may not
// overlap inputs or one another. Those that `op` does not name are ignored.
struct PassArgs {
  PassOp op = PassOp::kScan;
  int64_t size = 0;
  const float* g = nullptr;
  const float* u = nullptr;
  const float* v = nullptr;
  float* u_out = nullptr;
  float* v_out = nullptr;
  float* s_out = nullptr;
  float momentum = 0;
  float compensation = 0;
};

// Does the sweep and appends the positions with |s| >= threshold (infinity:
// none) to *positions, increasing. False when an s is not finite, which covers
// every input and output that is not; outputs and *positions are then
// unspecified.
bool RunPass(const PassArgs& args, float threshold,
             std::vector<uint32_t>* positions);

// kScan over finite `values`.
void AppendAtLeast(absl::Span<const float> values, float threshold,
                   std::vector<uint32_t>* positions);

// Names of the instruction sets that this build and processor have, best first;
// {"portable"} without Highway.
std::vector<std::string> PassTargets();
// Makes RunPass use one of PassTargets(), for tests; an empty name goes back to
// the best. Not thread-safe. False for an unknown name.
bool UsePassTargetForTest(absl::string_view name);

namespace internal {

// A sweep is done in chunks of this many elements. PassChunk's args.size is at
// most that; it writes the positions, each plus `base`, to `positions` (room
// for kPassChunk), returns their number and clears *finite when an s is not.
inline constexpr int64_t kPassChunk = 4096;
int64_t PassChunk(const PassArgs& args, float threshold, uint32_t base,
                  uint32_t* positions, bool* finite);

}  // namespace internal
}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_PASS_H_
