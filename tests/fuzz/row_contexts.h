// Contexts for which row_fuzzer decodes, and its seeds are made.

#ifndef RIVULET_TESTS_FUZZ_ROW_CONTEXTS_H_
#define RIVULET_TESTS_FUZZ_ROW_CONTEXTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/check.h"
#include "compression/row_coder.h"

namespace rivulet::fuzz {

inline constexpr size_t kNumRowContexts = 4;

// A fresh matrix; one whose rows are of many classes, a range of a larger one;
// one whose rows are sent nearly whole; and the largest.
inline RowContext MakeRowContext(size_t which) {
  if (which == 0) return RowContext(1000, 10);
  RowContext context = which == 1   ? RowContext(3001, 20, 7)
                       : which == 2 ? RowContext(640, 64)
                                    : RowContext(0xFFFFFFFF, 0x10001);
  RowContext::State state = context.state();
  uint32_t count = which == 2 ? 64u << 14 : 1;
  for (uint32_t& c : state.counts) {
    c = count;
    if (which != 2) count = count * 5 % 1000003;
  }
  RV_CHECK(context.set_state(std::move(state)).ok());
  return context;
}

}  // namespace rivulet::fuzz

#endif  // RIVULET_TESTS_FUZZ_ROW_CONTEXTS_H_
