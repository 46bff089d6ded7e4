// Fuzzes DecodeRice. The input is a parameter, a size of four bytes, a count of
// two, and the code. What is accepted must be increasing and in range, must
// decode in the same way with other bytes behind it, and must be what
// AppendRice makes of it: a list has one code.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "compression/bit_io.h"
#include "compression/rice.h"

namespace rivulet {
namespace {

constexpr size_t kHeaderBytes = 7;

void Decode(absl::string_view input) {
  if (input.size() < kHeaderBytes) return;
  const int parameter =
      static_cast<int>(LoadLittleEndian(input, 0, 1) % (kMaxRiceParameter + 1));
  const int64_t size = LoadLittleEndian(input, 1, 4);
  const uint64_t count = LoadLittleEndian(input, 5, 2);
  const absl::string_view code = input.substr(kHeaderBytes);
  std::vector<uint32_t> positions;
  size_t consumed = 0;
  if (!DecodeRice(code, count, parameter, size, &positions, &consumed).ok()) {
    return;
  }
  RV_CHECK_EQ(positions.size(), count);
  uint64_t next = 0;
  for (const uint32_t p : positions) {
    RV_CHECK_GE(p, next);
    RV_CHECK_LT(p, size);
    next = uint64_t{p} + 1;
  }
  std::string again;
  AppendRice(positions, 0, parameter, &again);
  RV_CHECK(code.substr(0, consumed) == again);
  again += "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF";
  std::vector<uint32_t> same(positions.size());
  RV_CHECK(
      DecodeRice(again, parameter, size, absl::MakeSpan(same), &consumed).ok());
  RV_CHECK(same == positions);
}

}  // namespace
}  // namespace rivulet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rivulet::Decode({reinterpret_cast<const char*>(data), size});
  return 0;
}
