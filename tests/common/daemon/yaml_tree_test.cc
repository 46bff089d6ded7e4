#include "common/daemon/yaml_tree.h"

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
using Kind = YamlValue::Kind;

TEST(YamlTreeTest, KeepsOrderLinesAndQuotes) {
  RV_ASSERT_OK_AND_ASSIGN(const YamlValue root,
                          ParseYaml("a: 1\nb:\n  - x\n  - 'y'\nc:\n", "f"));
  ASSERT_EQ(root.kind, Kind::kMap);
  ASSERT_EQ(root.keys.size(), 3u);
  EXPECT_EQ(root.keys[0].text, "a");
  EXPECT_EQ(root.items[0].text, "1");
  EXPECT_FALSE(root.items[0].quoted);
  const YamlValue& list = root.items[1];
  ASSERT_EQ(list.kind, Kind::kList);
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(list.items[1].text, "y");
  EXPECT_TRUE(list.items[1].quoted);
  EXPECT_EQ(list.items[1].line, 4);
  EXPECT_EQ(root.keys[2].line, 5);
  EXPECT_EQ(root.items[2].kind, Kind::kNull);
}

TEST(YamlTreeTest, KeepsDuplicateKeysForTheCaller) {
  RV_ASSERT_OK_AND_ASSIGN(const YamlValue root, ParseYaml("a: 1\na: 2\n", "f"));
  EXPECT_EQ(root.keys.size(), 2u);
}

TEST(YamlTreeTest, EmptyTextIsNothing) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~"}) {
    RV_ASSERT_OK_AND_ASSIGN(const YamlValue root, ParseYaml(text, "f"));
    EXPECT_EQ(root.kind, Kind::kNull) << text;
  }
}

TEST(YamlTreeTest, SyntaxErrorNamesFileAndLine) {
  EXPECT_THAT(
      ParseYaml("a: 1\nb: [1, 2\nc: 3\n", "run.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("run.yaml:")));
  EXPECT_THAT(
      ParseYaml("a: 1\n\tb: 2\n", "run.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("run.yaml:2: "), HasSubstr("not YAML"))));
}

TEST(YamlTreeTest, RefusesAnchorsAliasesTagsAndSecondDocuments) {
  const auto refused = [](const char* text, const char* why) {
    EXPECT_THAT(ParseYaml(text, "f"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("f:"), HasSubstr(why))))
        << text;
  };
  refused("a: &x 1\nb: *x\n", "anchor");
  refused("a: &x [1]\n", "anchor");
  refused("a: &x {b: 1}\n", "anchor");
  refused("a: !!str 1\n", "tag");
  refused("a: !mine {b: 1}\n", "tag");
  refused("a: 1\n---\nb: 2\n", "second");
}

TEST(YamlTreeTest, RefusesABombOfAliasesWithoutExpandingIt) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = absl::StrCat("*a", i - 1);
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [", before);
    for (int j = 0; j < 8; ++j) absl::StrAppend(&bomb, ", ", before);
    absl::StrAppend(&bomb, "]\n");
  }
  EXPECT_THAT(ParseYaml(bomb, "f"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f:1:")));
}

TEST(YamlTreeTest, BoundsDepthAndSize) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  RV_EXPECT_OK(ParseYaml(nested(kMaxYamlDepth), "f"));
  EXPECT_THAT(ParseYaml(nested(kMaxYamlDepth + 1), "f"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("levels of nesting")));
  // Far beyond: must not exhaust the stack. The parser's own limit is met
  // first.
  EXPECT_THAT(
      ParseYaml(nested(100000), "f"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("f:1: found text that is not YAML (bad file)")));
}

TEST(YamlTreeTest, ChecksTheTextFirst) {
  EXPECT_THAT(ParseYaml("a: 1\nb: \xc0\xaf\n", "f"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("f:2: "), HasSubstr("byte 0xc0"))));
  EXPECT_THAT(ParseYaml("a: 1\nb: 'x\nc: 2'\n", "f"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("f:2: "), HasSubstr("begins with '"))));
}

TEST(YamlTreeTest, DescribesATextInOneSafeLine) {
  const auto described = [](const std::string& yaml) {
    const absl::StatusOr<YamlValue> value = ParseYaml(yaml, "f");
    return value.ok() ? value->Describe() : value.status().ToString();
  };
  EXPECT_EQ(described("\"a\\n\\e[1m\\x9bZ\xc3\xbcrich\""),
            "the text \"a\\n\\x1b[1m\\xc2\\x9bZ\xc3\xbcrich\"");
  // Cut between characters, not inside of one.
  std::string umlauts;
  for (int i = 0; i < 40; ++i) umlauts += "\xc3\xbc";
  EXPECT_EQ(described("a" + umlauts), "a" + umlauts.substr(0, 60) + "...");
}

}  // namespace
}  // namespace rivulet
