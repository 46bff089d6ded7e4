// Fuzzes DecodeLevels and DecodeIntegers. The input is a byte for mode and book
// or width, a count of two bytes, and the code. What is accepted must be levels
// of the book, and decode again from what the encoder makes of it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "compression/bit_io.h"
#include "compression/level_coder.h"

namespace rivulet {
namespace {

constexpr size_t kHeaderBytes = 3;

void CheckLevels(absl::string_view code, int book, LevelMode mode,
                 size_t count) {
  std::vector<int8_t> levels(count);
  size_t consumed = 0;
  if (!DecodeLevels(code, book, mode, absl::MakeSpan(levels), &consumed).ok()) {
    return;
  }
  RV_CHECK_LE(consumed, code.size());
  for (const int8_t level : levels) {
    RV_CHECK(level != 0 && std::abs(level) <= book) << int{level};
  }
  std::string again;
  AppendLevels(levels, book, mode, &again);
  if (mode == LevelMode::kPacked) {
    RV_CHECK(code.substr(0, consumed) == again);
  }
  RV_CHECK_EQ(again.size(), consumed);
  std::vector<int8_t> same(count);
  RV_CHECK(
      DecodeLevels(again, book, mode, absl::MakeSpan(same), &consumed).ok());
  RV_CHECK(same == levels);
}

void CheckIntegers(absl::string_view code, int bits, size_t count) {
  std::vector<int8_t> values(count);
  size_t consumed = 0;
  if (!DecodeIntegers(code, bits, absl::MakeSpan(values), &consumed).ok()) {
    return;
  }
  for (const int8_t v : values) RV_CHECK_LT(std::abs(v), 1 << (bits - 1));
  std::string again;
  AppendIntegers(values, bits, &again);
  RV_CHECK(code.substr(0, consumed) == again);
}

void Decode(absl::string_view input) {
  if (input.size() < kHeaderBytes) return;
  const uint32_t kind = LoadLittleEndian(input, 0, 1) % 10;
  const size_t count = LoadLittleEndian(input, 1, 2);
  const absl::string_view code = input.substr(kHeaderBytes);
  if (kind < 8) {
    CheckLevels(code, 1 << kind / 2,
                kind % 2 == 0 ? LevelMode::kPacked : LevelMode::kAdaptive,
                count);
  } else {
    CheckIntegers(code, kind == 8 ? 4 : 8, count);
  }
}

}  // namespace
}  // namespace rivulet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rivulet::Decode({reinterpret_cast<const char*>(data), size});
  return 0;
}
