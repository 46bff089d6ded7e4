// Text from outside, a character at a time. Thread-safe.

#ifndef RIVULET_COMMON_DAEMON_UTF8_H_
#define RIVULET_COMMON_DAEMON_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace rivulet {

// The bytes of the UTF-8 character that `text`, which is not empty, begins
// with; 0 where it does not begin with one. As in RFC 3629 there is no overlong
// form, no surrogate and nothing beyond U+10FFFF.
size_t Utf8Length(absl::string_view text);

// Whether `character`, one of UTF-8, is a control character: U+0000 to U+001F
// or U+007F to U+009F. Some terminals act on the latter, too.
bool IsControlCharacter(absl::string_view character);

// Whether all of `text` is UTF-8 without control characters.
bool IsPlainText(absl::string_view text);

// What a peer or a file wrote, fit for a log or a terminal: bytes that are no
// UTF-8, and those of control characters, as \xNN.
std::string Printable(absl::string_view text);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_UTF8_H_
