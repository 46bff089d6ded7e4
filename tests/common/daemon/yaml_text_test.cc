#include "common/daemon/yaml_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void ExpectRefused(const std::string& text, int line, const std::string& why) {
  EXPECT_THAT(CheckYamlText(text, "run.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith(absl::StrCat("run.yaml:", line, ": ")),
                             HasSubstr(why))))
      << text;
}

TEST(YamlTextTest, BoundsTheSize) {
  RV_EXPECT_OK(CheckYamlText(std::string(kMaxYamlBytes, ' '), "f"));
  EXPECT_THAT(CheckYamlText(std::string(kMaxYamlBytes + 1, ' '), "f"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("f: found more than 262144 bytes")));
}

TEST(YamlTextTest, NamesTheLineOfABadByte) {
  ExpectRefused(std::string("a: 1\nb: \0\n", 9), 2, "byte 0x00");
  ExpectRefused("a: \x1b[31m\n", 1, "byte 0x1b, which begins a control");
  ExpectRefused("a: 1\nb: \xc2\x9b\n", 2, "byte 0xc2, which begins a control");
  ExpectRefused(
      "\xff\xfe"
      "a",
      1, "byte 0xff, which begins no UTF-8");
  ExpectRefused("a: 1\r\n\nb: \xc0\xaf\n", 3, "byte 0xc0, which begins no");
  ExpectRefused("# \xed\xa0\x80\n", 1, "byte 0xed, which begins no");
  ExpectRefused("a: 1\nb: \xf4\x90\x80\x80\n", 2, "byte 0xf4");
  ExpectRefused("a: 1\nb: \xe2\x82", 2, "byte 0xe2");
  RV_EXPECT_OK(
      CheckYamlText("\xef\xbb\xbf"
                    "a:\t'Z\xc3\xbcrich'\r\n",
                    "f"));
}

TEST(YamlTextTest, NamesTheLineWhereAnUnclosedQuoteOpens) {
  const std::string why = "a text that begins with ' and has no such quote";
  ExpectRefused("a: 1\nb: 'x\nc: 2\nd: 3\n", 2, why);
  // Here a later quote closes it: yaml-cpp takes all of it for one text.
  ExpectRefused("a: 1\nb: 'x\nc: 2\nd: 3'\n", 2, why);
  ExpectRefused("a: 1\nb: 'x\nc: 'y'\n", 2, why);
  ExpectRefused("a: \"x\n", 1, "a text that begins with \" and has no such");
  ExpectRefused("'a: 1\n", 1, why);
  ExpectRefused("- x\n- - 'y\n", 2, why);
  ExpectRefused("? 'y\n", 1, why);
  ExpectRefused("--- 'y\n", 1, why);
  ExpectRefused("a: [x,\n  'y, z]\n", 2, why);
  ExpectRefused("a: {b: 1, c: 'y}\n", 1, why);
  ExpectRefused("a: {\"b\":'y}\n", 1, why);
  ExpectRefused("a: &name 'y\n", 1, why);
  ExpectRefused("a: 'it''s\nb: 1\n", 1, why);
  ExpectRefused("a: \"x\\\"\nb: 1\n", 1, "begins with \"");
  ExpectRefused("a: \"x\\", 1, "begins with \"");
  ExpectRefused("a: |\n  'x\nb: 'y\n", 3, why);
  ExpectRefused("- - |\n   x\n  - 'y\n", 3, why);
  ExpectRefused("- a: |\n    x\n  b: 'y\n", 3, why);
}

TEST(YamlTextTest, KnowsAQuoteFromAPlainCharacter) {
  for (const std::string text : {
           "a: it's\nb: 5\"\n",
           "# it's\na: 1  # isn't\n",
           "a: x#'y\n",
           "a: ''\nb: \"\"\n",
           "a: 'it''s'\nb: \"a \\\" b\"\n",
           "a: \"x\\\\\"\n",
           "a: ['x', \"y\"]\nb: {'c': 'd', \"e\":'f'}\n",
           "a: 'x'  # it's\n",
           "a: b:'c\n",
           "a: x,'y\n",
           "a: |\n  'x\n\n  \"y\nb: 1\n",
           "a: >-\n  'x\n",
           "- |\n 'x\n- y\n",
           "- - |\n   'x\n",
           "- a: |2\n    'x\n  b: 1\n",
           "a: 'x'\r\nb: 'y'\r\n",
           "a: x\n...\n",
       }) {
    RV_EXPECT_OK(CheckYamlText(text, "f")) << text;
  }
}

TEST(YamlTextTest, NamesTheLineOfABracketWithoutAnEnd) {
  ExpectRefused("a: 1\nb: [1, 2\nc: 3\nd: [4]\n", 2, "found [ without an end");
  ExpectRefused("a:\n  {x: [1],\n   y: 2\n", 2, "found { without an end");
  RV_EXPECT_OK(CheckYamlText("a: [1,\n    2]\nb: c[d\ne: '['\n", "f"));
  RV_EXPECT_OK(CheckYamlText("a: |\n  [\nb: 1  # [\n", "f"));
  RV_EXPECT_OK(CheckYamlText("a: [*w]\nb: [&x 1, *x]\n", "f"))
      << "another's complaint";
}

}  // namespace
}  // namespace rivulet
