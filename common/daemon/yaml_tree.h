// YAML text as a plain tree with line numbers: the one place that meets
// yaml-cpp, which throws, keeps duplicate keys silently and expands aliases.
// Hostile input is bounded: text and depth are checked (yaml_text.h), and
// anchors, aliases and tags are refused, so a tree is never larger than its
// text.

#ifndef RIVULET_COMMON_DAEMON_YAML_TREE_H_
#define RIVULET_COMMON_DAEMON_YAML_TREE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

inline constexpr int kMaxYamlDepth = 16;

// Immutable value once parsed.
struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 1;         // from 1
  std::string text;     // kScalar
  bool quoted = false;  // kScalar: '...', "..." or a block: text for certain
  std::vector<YamlValue> items;  // kList; kMap: the values
  std::vector<YamlValue> keys;   // kMap: keys[i] has the value items[i]

  // For messages: `1.5`, `the text "a"`, `a list`, `a map`, `nothing`.
  std::string Describe() const;
};

// One document; an empty text is kNull. Duplicate keys are kept, for the caller
// to name. InvalidArgument says "<origin>:<line>: ..." for what CheckYamlText
// refuses, a syntax error, anchors, aliases and tags, more than kMaxYamlDepth
// levels, and a second document.
absl::StatusOr<YamlValue> ParseYaml(absl::string_view text,
                                    const std::string& origin);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_YAML_TREE_H_
