#include "common/daemon/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/utf8.h"
#include "common/daemon/yaml_text.h"

namespace rivulet {
namespace {

// Of a text in a message: about one line.
constexpr size_t kShownBytes = 60;

std::string Shortened(const std::string& text) {
  // yaml-cpp unpacks "\x9b" and the like, which no terminal should get.
  std::string shown;
  for (absl::string_view rest = text; !rest.empty();) {
    if (shown.size() >= kShownBytes) return shown + "...";
    const size_t length = std::max<size_t>(Utf8Length(rest), 1);
    const absl::string_view character = rest.substr(0, length);
    shown += IsPlainText(character) ? absl::Utf8SafeCEscape(character)
                                    : absl::CHexEscape(character);
    rest.remove_prefix(length);
  }
  return shown;
}

absl::Status At(const std::string& origin, int line, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(origin, ":", line, ": ", what));
}

// Builds the tree from yaml-cpp's events. The first complaint is kept and the
// rest of the events are ignored, since a handler must not throw.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string origin) : origin_(std::move(origin)) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (Refuses(mark, "?", anchor)) return;
    Emit(Make(YamlValue::Kind::kNull, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Complain(mark, "found an alias (*name); allowed: plain values");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& value) override {
    if (Refuses(mark, tag, anchor)) return;
    YamlValue scalar = Make(YamlValue::Kind::kScalar, mark);
    scalar.text = value;
    scalar.quoted = tag == "!";
    Emit(std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlValue::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    Open(YamlValue::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  const absl::Status& status() const { return status_; }
  YamlValue Take() { return std::move(root_); }

 private:
  // A container that is not closed yet; in a map `key` waits for its value.
  struct Frame {
    YamlValue value;
    bool has_key = false;
    YamlValue key;
  };

  static YamlValue Make(YamlValue::Kind kind, const YAML::Mark& mark) {
    YamlValue value;
    value.kind = kind;
    value.line = std::max(mark.line, 0) + 1;
    return value;
  }

  void Complain(const YAML::Mark& mark, absl::string_view what) {
    if (status_.ok()) status_ = At(origin_, std::max(mark.line, 0) + 1, what);
  }

  bool Refuses(const YAML::Mark& mark, const std::string& tag,
               YAML::anchor_t anchor) {
    if (anchor != 0) {
      Complain(mark, "found an anchor (&name); allowed: plain values");
    } else if (!tag.empty() && tag != "?" && tag != "!") {
      Complain(mark, "found a YAML tag (!name); allowed: plain values");
    }
    return !status_.ok();
  }

  void Open(YamlValue::Kind kind, const YAML::Mark& mark,
            const std::string& tag, YAML::anchor_t anchor) {
    if (Refuses(mark, tag, anchor)) return;
    if (stack_.size() >= static_cast<size_t>(kMaxYamlDepth)) {
      Complain(mark, absl::StrCat("found more than ", kMaxYamlDepth,
                                  " levels of nesting; allowed: at most ",
                                  kMaxYamlDepth));
      return;
    }
    Frame frame;
    frame.value = Make(kind, mark);
    stack_.push_back(std::move(frame));
  }

  void Close() {
    if (!status_.ok()) return;
    YamlValue value = std::move(stack_.back().value);
    stack_.pop_back();
    Emit(std::move(value));
  }

  void Emit(YamlValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& top = stack_.back();
    if (top.value.kind == YamlValue::Kind::kList) {
      top.value.items.push_back(std::move(value));
    } else if (top.has_key) {
      top.value.keys.push_back(std::move(top.key));
      top.value.items.push_back(std::move(value));
      top.has_key = false;
    } else {
      top.key = std::move(value);
      top.has_key = true;
    }
  }

  const std::string origin_;
  absl::Status status_;
  std::vector<Frame> stack_;
  YamlValue root_;
};

}  // namespace

std::string YamlValue::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
    case Kind::kScalar:
      break;
  }
  return quoted ? absl::StrCat("the text \"", Shortened(text), "\"")
                : Shortened(text);
}

absl::StatusOr<YamlValue> ParseYaml(absl::string_view text,
                                    const std::string& origin) {
  RV_RETURN_IF_ERROR(CheckYamlText(text, origin));
  TreeBuilder builder(origin);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    parser.HandleNextDocument(builder);
    if (!builder.status().ok()) return builder.status();
    YamlValue root = builder.Take();
    TreeBuilder rest(origin);
    if (parser.HandleNextDocument(rest)) {
      return absl::InvalidArgumentError(absl::StrCat(
          origin, ": found a second YAML document (---); allowed: one"));
    }
    return root;
  } catch (const YAML::Exception& e) {
    return At(origin, std::max(e.mark.line, 0) + 1,
              absl::StrCat("found text that is not YAML (", e.msg,
                           "); allowed: key: value lines, indented by spaces"));
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ": found text that is not YAML (", e.what(), ")"));
  }
}

}  // namespace rivulet
