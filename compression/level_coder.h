// The values of what is sent, as symbols, in bytes: signs and numbers of
// magnitudes ("levels"), packed or by an adaptive model, and plain small
// integers for tensors that are sent whole.
//
// A level is ±(1 + index), index the number of a magnitude among `book` = 1, 2,
// 4 or 8. Two codes, of which AppendLevels takes the shorter:
//
// - packed: for each level a bit that is set where it is negative, then the
//   index in log2(book) bits. They fill bytes from the lowest bit up; unused
//   bits of the last byte are 0.
// - adaptive: the signs, packed as if the book were of 1; then a range code
//   (range_coder.h) of the indices: the log2(book) bits of each from the
//   highest, each in the context of those before it. It pays where magnitudes
//   are unevenly used.
//
// Levels are int8_t or int16_t, and always within int8_t.
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_LEVEL_CODER_H_
#define RIVULET_COMPRESSION_LEVEL_CODER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rivulet {

enum class LevelMode : uint8_t { kPacked = 0, kAdaptive = 1 };

struct LevelSize {
  LevelMode mode = LevelMode::kPacked;
  int64_t num_bytes = 0;
};

// Bytes of `count` packed levels.
int64_t PackedLevelBytes(size_t count, int book);

// The shorter code and its exact size; packed, where both are of one. Codes the
// levels to find it: about as slow as coding them.
LevelSize LevelCodeSize(absl::Span<const int8_t> levels, int book);
LevelSize LevelCodeSize(absl::Span<const int16_t> levels, int book);

// Appends the shorter code, and says which that is.
LevelMode AppendLevels(absl::Span<const int8_t> levels, int book,
                       std::string* out);
LevelMode AppendLevels(absl::Span<const int16_t> levels, int book,
                       std::string* out);

// Appends the code of that mode.
void AppendLevels(absl::Span<const int8_t> levels, int book, LevelMode mode,
                  std::string* out);
void AppendLevels(absl::Span<const int16_t> levels, int book, LevelMode mode,
                  std::string* out);

// Decodes out.size() levels from the front of `bytes`; *consumed is the number
// of bytes used. InvalidArgument when the bytes end first, or when padding is
// not zero. A level takes a bit at least: callers who take memory for an
// announced count compare that first. After an error `out` holds anything.
absl::Status DecodeLevels(absl::string_view bytes, int book, LevelMode mode,
                          absl::Span<int8_t> out, size_t* consumed);
absl::Status DecodeLevels(absl::string_view bytes, int book, LevelMode mode,
                          absl::Span<int16_t> out, size_t* consumed);

// Integers in two's complement of `bits` = 4 (−7…7, the first of two in the low
// half of a byte, 0 in an unused half) or 8 (−127…127).
void AppendIntegers(absl::Span<const int8_t> values, int bits,
                    std::string* out);
void AppendIntegers(absl::Span<const int16_t> values, int bits,
                    std::string* out);
// InvalidArgument also for −8 and −128.
absl::Status DecodeIntegers(absl::string_view bytes, int bits,
                            absl::Span<int8_t> out, size_t* consumed);
absl::Status DecodeIntegers(absl::string_view bytes, int bits,
                            absl::Span<int16_t> out, size_t* consumed);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_LEVEL_CODER_H_
