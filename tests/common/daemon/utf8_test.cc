#include "common/daemon/utf8.h"

#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

// The definition, RFC 3629, section 3.
std::string Encoded(uint32_t code) {
  const auto tail = [code](int shift) {
    return static_cast<char>(0x80 | ((code >> shift) & 0x3f));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) {
    return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  }
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8LengthTest, TakesEveryCodePointAndNoSurrogate) {
  for (uint32_t code = 0; code <= 0x10ffff; ++code) {
    const std::string text = Encoded(code);
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    ASSERT_EQ(Utf8Length(text + "a"), is_surrogate ? 0 : text.size()) << code;
  }
}

TEST(Utf8LengthTest, RefusesWhatIsNotUtf8) {
  for (const absl::string_view text : {
           "\x80",              // a tail without a head
           "\xbf",              //
           "\xc0\x80",          // overlong, of NUL
           "\xc1\xbf",          // overlong, of U+007F
           "\xe0\x9f\xbf",      // overlong, of U+07FF
           "\xf0\x8f\xbf\xbf",  // overlong, of U+FFFF
           "\xed\xa0\x80",      // U+D800
           "\xed\xbf\xbf",      // U+DFFF
           "\xf4\x90\x80\x80",  // U+110000
           "\xf5\x80\x80\x80",  //
           "\xfe",
           "\xff",              //
           "\xc3",              // cut
           "\xe2\x82",          //
           "\xf0\x9f\x98",      //
           "\xc3\x28",          // cut by another character
           "\xe2\x82\x28",      //
           "\xe2\x28\xa1",      //
           "\xf0\x9f\x98\x28",  //
           "\xf0\x9f\x98\xc0",  //
       }) {
    EXPECT_EQ(Utf8Length(text), 0u) << absl::CHexEscape(text);
    EXPECT_FALSE(IsPlainText(text)) << absl::CHexEscape(text);
  }
}

TEST(IsControlCharacterTest, KnowsBothRanges) {
  for (uint32_t code = 0; code < 0x400; ++code) {
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    EXPECT_EQ(IsControlCharacter(Encoded(code)), is_control) << code;
  }
}

TEST(IsPlainTextTest, LooksAtEveryCharacter) {
  EXPECT_TRUE(IsPlainText(""));
  EXPECT_TRUE(IsPlainText("Zürich, 東京, \xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsPlainText("a\tb"));
  EXPECT_FALSE(IsPlainText("Zürich\xc2\x9b"));
  EXPECT_FALSE(IsPlainText("Zürich\xc3"));
}

TEST(Utf8Test, PrintableLeavesTextAndShowsTheBytesOfTheRest) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("it's \"\xc3\xa4\" \\x"), "it's \"\xc3\xa4\" \\x");
  EXPECT_EQ(Printable("a\x1b[31m\x7f\n"), "a\\x1b[31m\\x7f\\x0a");
  EXPECT_EQ(Printable("\xc2\x9b|\xff|\xc3"), "\\xc2\\x9b|\\xff|\\xc3");
}

}  // namespace
}  // namespace rivulet
