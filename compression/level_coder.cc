#include "compression/level_coder.h"

#include <bit>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "compression/bit_io.h"

namespace rivulet {
namespace {

int IndexBits(int book) {
  RV_CHECK(book == 1 || book == 2 || book == 4 || book == 8) << book;
  return std::countr_zero(static_cast<unsigned>(book));
}

}  // namespace

void AppendPackedLevels(absl::Span<const int16_t> levels, int book,
                        std::string* out) {
  const int bits = IndexBits(book);
  BitWriter writer(out);
  for (const int16_t level : levels) {
    const uint32_t sign = level < 0 ? 1 : 0;
    const auto index = static_cast<uint32_t>((level < 0 ? -level : level) - 1);
    writer.Write(sign | index << 1, 1 + bits);
  }
  writer.Finish();
}

absl::Status DecodePackedLevels(absl::string_view bytes, int book,
                                absl::Span<int16_t> out, size_t* consumed) {
  const int bits = IndexBits(book);
  BitReader reader(bytes);
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t symbol = 0;
    if (!reader.Read(1 + bits, &symbol)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("level %u of %u is cut off", i, out.size()));
    }
    const int magnitude = static_cast<int>(symbol >> 1) + 1;
    out[i] = static_cast<int16_t>((symbol & 1) != 0 ? -magnitude : magnitude);
  }
  if (!reader.Finish(consumed)) {
    return absl::InvalidArgumentError("padding after the levels is not zero");
  }
  return absl::OkStatus();
}

}  // namespace rivulet
