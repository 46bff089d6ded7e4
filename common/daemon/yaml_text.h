// What is checked of a YAML text before yaml-cpp sees it: faults that yaml-cpp
// takes as they come, or reports far from where they are.

#ifndef RIVULET_COMMON_DAEMON_YAML_TEXT_H_
#define RIVULET_COMMON_DAEMON_YAML_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rivulet {

inline constexpr size_t kMaxYamlBytes = 256 * 1024;

// At most kMaxYamlBytes of UTF-8 without control characters but tabs and line
// ends, and no quoted text that goes on in a further line: a quote that was
// forgotten would swallow what follows, up to some later quote. Every [ and {
// has its end. InvalidArgument says "<origin>:<line>: ..." with the line of the
// bad byte, of the opening quote or of the outermost bracket.
//
// Quotes count where YAML's rules let a value begin; elsewhere (it's) they are
// plain characters. One plain text is taken for a quoted one: the second line
// of a text without quotes, if it begins with a quote.
absl::Status CheckYamlText(absl::string_view text, const std::string& origin);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_YAML_TEXT_H_
