// Fuzzes the frame decoder in two ways: the input as it is, and as the body of
// a frame whose checksum is right, so that the parser behind the checksum is
// reached. What is accepted must keep the promises of SegmentUpdate.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "compression/bit_io.h"
#include "compression/frame.h"

namespace rivulet {
namespace {

// An ordinary table with small tensors, an empty segment and the largest one.
const SegmentTable& Table() {
  static const auto* const table =
      new SegmentTable({{300, false},
                        {256, true},
                        {1, true},
                        {5000, false},
                        {0, false},
                        {int64_t{std::numeric_limits<uint32_t>::max()}, false},
                        {40, true}});
  return *table;
}

void CheckUpdate(const SegmentUpdate& update, size_t input_bytes) {
  RV_CHECK_LT(update.segment, Table().count());
  const uint64_t size = static_cast<uint64_t>(Table().size(update.segment));
  // A value takes a bit at least: memory is bounded by the input.
  RV_CHECK_LE(update.values.size(), 8 * input_bytes);
  for (const float v : update.values) RV_CHECK(std::isfinite(v));
  if (update.mode != SegmentUpdate::Mode::kAddSparse) {
    RV_CHECK_EQ(update.values.size(), size);
    return;
  }
  RV_CHECK_EQ(update.values.size(), update.positions.size());
  uint64_t next = 0;
  for (const uint32_t p : update.positions) {
    RV_CHECK_GE(p, next);
    RV_CHECK_LT(p, size);
    next = uint64_t{p} + 1;
  }
}

void Decode(absl::string_view bytes) {
  const auto updates = DecodeFrames(bytes, Table());
  if (!updates.ok()) return;
  for (const SegmentUpdate& update : *updates) {
    CheckUpdate(update, bytes.size());
    const int64_t size = Table().size(update.segment);
    if (size > 5000) continue;
    std::vector<float> target(static_cast<size_t>(size));
    update.ApplyTo(absl::MakeSpan(target));
  }
}

}  // namespace
}  // namespace rivulet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  rivulet::Decode(input);
  std::string frame(1, static_cast<char>(rivulet::kFrameVersion));
  rivulet::AppendVarint(size, &frame);
  frame.append(input.data(), input.size());
  rivulet::AppendLittleEndian(rivulet::MaskedCrc32c(frame), 4, &frame);
  rivulet::Decode(frame);
  return 0;
}
