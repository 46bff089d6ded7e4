// Fuzzes DecodeRows. The input is the number of a context, a count of two
// bytes, and the code. What is accepted must be increasing and in range, and
// decode again from what AppendRows makes of it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "compression/bit_io.h"
#include "compression/row_coder.h"
#include "tests/fuzz/row_contexts.h"

namespace rivulet {
namespace {

constexpr size_t kHeaderBytes = 3;

void Decode(const RowContext& context, absl::string_view code, size_t count) {
  std::vector<uint32_t> positions(count);
  size_t consumed = 0;
  if (!DecodeRows(context, code, absl::MakeSpan(positions), &consumed).ok()) {
    return;
  }
  RV_CHECK_LE(consumed, code.size());
  uint64_t next = 0;
  for (const uint32_t p : positions) {
    RV_CHECK_GE(p, next);
    RV_CHECK_LT(p, context.size());
    next = uint64_t{p} + 1;
  }
  std::string again;
  AppendRows(context, positions, &again);
  std::vector<uint32_t> same(count);
  RV_CHECK(DecodeRows(context, again, absl::MakeSpan(same), &consumed).ok());
  RV_CHECK(same == positions);
  RV_CHECK_EQ(consumed, again.size());
}

}  // namespace
}  // namespace rivulet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<rivulet::RowContext>* const contexts = [] {
    auto* made = new std::vector<rivulet::RowContext>();
    for (size_t i = 0; i < rivulet::fuzz::kNumRowContexts; ++i) {
      made->push_back(rivulet::fuzz::MakeRowContext(i));
    }
    return made;
  }();
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  if (size < rivulet::kHeaderBytes) return 0;
  rivulet::Decode((*contexts)[data[0] % contexts->size()],
                  input.substr(rivulet::kHeaderBytes),
                  static_cast<size_t>(rivulet::LoadLittleEndian(input, 1, 2)));
  return 0;
}
