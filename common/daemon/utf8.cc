#include "common/daemon/utf8.h"

#include <utf8.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rivulet {

size_t Utf8Length(absl::string_view text) {
  const char* next = text.data();
  try {
    utf8::next(next, text.data() + text.size());
  } catch (const utf8::exception&) {
    return 0;
  }
  return static_cast<size_t>(next - text.data());
}

bool IsControlCharacter(absl::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

bool IsPlainText(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0 || IsControlCharacter(text.substr(0, length))) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const absl::string_view character =
        text.substr(0, std::max<size_t>(length, 1));
    if (length > 0 && !IsControlCharacter(character)) {
      absl::StrAppend(&printable, character);
    } else {
      for (const char byte : character) {
        absl::StrAppend(
            &printable, "\\x",
            absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
      }
    }
    text.remove_prefix(character.size());
  }
  return printable;
}

}  // namespace rivulet
