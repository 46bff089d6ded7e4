#include "common/base/utf8.h"

namespace rivulet {

size_t Utf8Length(absl::string_view text) {
  const auto byte = [text](size_t i) -> unsigned {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  // The second byte tells overlong forms, surrogates and what is beyond the
  // end.
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return length;
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

}  // namespace rivulet
