#include "common/daemon/yaml_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/daemon/utf8.h"

namespace rivulet {
namespace {

absl::Status At(const std::string& origin, int line, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(origin, ":", line, ": ", what));
}

// yaml-cpp guesses UTF-16 and UTF-32 from bytes that no UTF-8 text holds, and
// puts U+FFFD for what is damaged.
absl::Status CheckCharacters(absl::string_view text,
                             const std::string& origin) {
  int line = 1;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const absl::string_view character = text.substr(0, length);
    const bool is_space =
        character == "\n" || character == "\r" || character == "\t";
    if (length == 0 || (IsControlCharacter(character) && !is_space)) {
      return At(origin, line,
                absl::StrCat("found the byte 0x",
                             absl::Hex(static_cast<unsigned char>(text[0]),
                                       absl::kZeroPad2),
                             length == 0 ? ", which begins no UTF-8 character"
                                         : ", which begins a control character",
                             "; allowed: UTF-8 text without control "
                             "characters"));
    }
    if (character == "\n") ++line;
    text.remove_prefix(length);
  }
  return absl::OkStatus();
}

// Finds texts whose quote is not closed in its line, and brackets that are
// never closed. No key has a text of several lines; one that had could be
// written as a block (|). Follows YAML's rules as far as both need them:
// comments, blocks, and where a value can begin.
class EndChecker {
 public:
  explicit EndChecker(std::string origin) : origin_(std::move(origin)) {}

  absl::Status Check(absl::string_view text) {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      ++line_number_;
      absl::ConsumeSuffix(&line, "\r");
      if (line_number_ == 1) absl::ConsumePrefix(&line, "\xef\xbb\xbf");
      const size_t quote = FindUnclosed(line);
      if (quote == absl::string_view::npos) continue;
      return At(
          origin_, line_number_,
          absl::StrCat("found a text that begins with ", line.substr(quote, 1),
                       " and has no such quote at its end; allowed: a "
                       "text that begins and ends in one line"));
    }
    if (flow_depth_ == 0) return absl::OkStatus();
    return At(origin_, flow_line_,
              absl::StrCat("found ", std::string(1, flow_begin_),
                           " without an end; allowed: ",
                           flow_begin_ == '[' ? "[a, b, ...]" : "{a: b, ...}"));
  }

 private:
  static bool IsBlank(char c) { return c == ' ' || c == '\t'; }

  // Whether line[at], if there is one, ends a token.
  static bool EndsToken(absl::string_view line, size_t at) {
    return at >= line.size() || IsBlank(line[at]);
  }

  // The position behind the quote that closes the one at `at`, or npos.
  static size_t Close(absl::string_view line, size_t at) {
    const char quote = line[at];
    for (size_t i = at + 1; i < line.size(); ++i) {
      if (quote == '"' && line[i] == '\\') {
        ++i;
      } else if (line[i] == quote) {
        const bool doubled =
            quote == '\'' && i + 1 < line.size() && line[i + 1] == quote;
        if (!doubled) return i + 1;
        ++i;
      }
    }
    return absl::string_view::npos;
  }

  // Where in `line` a quote opens that the line does not close, or npos.
  size_t FindUnclosed(absl::string_view line) {
    size_t at = std::min(line.find_first_not_of(' '), line.size());
    if (in_block_) {
      const bool blank = line.find_first_not_of(" \t") == line.npos;
      if (blank || static_cast<int>(at) > block_parent_) return line.npos;
      in_block_ = false;
    }
    // The column of what a block that begins in this line belongs to.
    int parent = static_cast<int>(at);
    if (absl::StartsWith(line, "---") && EndsToken(line, 3)) {
      at = 3;
      parent = -1;
    }
    bool may_begin = true;     // whether a value can begin here
    bool after_quote = false;  // whether a quoted text ended just here
    while (at < line.size()) {
      const char c = line[at];
      const bool spaced = at == 0 || IsBlank(line[at - 1]);
      const bool ended = EndsToken(line, at + 1);
      const bool quoted_before = std::exchange(after_quote, false);
      if (IsBlank(c)) {
        ++at;
      } else if (c == '#' && spaced) {
        return line.npos;
      } else if (may_begin && (c == '"' || c == '\'')) {
        const size_t end = Close(line, at);
        if (end == line.npos) return at;
        at = end;
        may_begin = false;
        after_quote = true;
      } else if (may_begin && (c == '-' || c == '?') && ended) {
        // What follows is nested: its column is that of its first character.
        const size_t next = line.find_first_not_of(" \t", at + 1);
        const bool is_block = next != line.npos && IsBlockIndicator(line[next]);
        if (next != line.npos && !is_block) parent = static_cast<int>(next);
        ++at;
      } else if (may_begin && (c == '[' || c == '{')) {
        if (flow_depth_++ == 0) {
          flow_line_ = line_number_;
          flow_begin_ = c;
        }
        ++at;
      } else if (flow_depth_ > 0 && (c == ']' || c == '}')) {
        --flow_depth_;
        may_begin = false;
        ++at;
      } else if ((flow_depth_ > 0 && c == ',') ||
                 (c == ':' && (ended || (flow_depth_ > 0 && quoted_before)))) {
        may_begin = true;
        ++at;
      } else if (may_begin && (c == '&' || c == '!' || c == '*')) {
        // An anchor or a tag; a value may follow.
        const absl::string_view ends = flow_depth_ > 0 ? " \t,]}" : " \t";
        at = std::min(line.find_first_of(ends, at), line.size());
      } else if (may_begin && flow_depth_ == 0 && IsBlockIndicator(c)) {
        in_block_ = true;
        block_parent_ = parent;
        return line.npos;
      } else {
        may_begin = false;
        ++at;
      }
    }
    return line.npos;
  }

  static bool IsBlockIndicator(char c) { return c == '|' || c == '>'; }

  const std::string origin_;
  int line_number_ = 0;
  int flow_depth_ = 0;
  int flow_line_ = 0;      // where the outermost began
  char flow_begin_ = '[';  // and by what
  bool in_block_ = false;
  int block_parent_ = -1;
};

}  // namespace

absl::Status CheckYamlText(absl::string_view text, const std::string& origin) {
  if (text.size() > kMaxYamlBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ": found more than ", kMaxYamlBytes,
                     " bytes; allowed: at most as many"));
  }
  RV_RETURN_IF_ERROR(CheckCharacters(text, origin));
  return EndChecker(origin).Check(text);
}

}  // namespace rivulet
