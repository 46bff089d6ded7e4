// Levels of a book (compressed_tensor.h) as bits: a sign and the number of a
// magnitude each.
//
// Packed: for each level, a bit that is set where it is negative, then the
// number of its magnitude, from 0, in log2(book) bits. They fill bytes from the
// lowest bit up; unused bits of the last byte are 0.
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

// Appends `levels`, each ±1 ... ±book, for a book of 1, 2, 4 or 8.
void AppendPackedLevels(absl::Span<const int16_t> levels, int book,
                        std::string* out);

// Decodes out.size() levels from the front of `bytes`; *consumed is the number
// of bytes used. InvalidArgument when the bytes end first or the padding is not
// zero.
absl::Status DecodePackedLevels(absl::string_view bytes, int book,
                                absl::Span<int16_t> out, size_t* consumed);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_LEVEL_CODER_H_
