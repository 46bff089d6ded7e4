#include "common/daemon/config.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errno_status.h"
#include "common/base/join_first.h"
#include "common/base/status_macros.h"
#include "common/daemon/config_keys.h"
#include "common/daemon/config_rules.h"
#include "common/daemon/config_values.h"
#include "common/daemon/digest.h"
#include "common/daemon/yaml_text.h"
#include "common/daemon/yaml_tree.h"

namespace rivulet {
namespace {

std::string Join(const std::string& section, const std::string& name) {
  return section.empty() ? name : absl::StrCat(section, ".", name);
}

// Puts YAML values into a Config and remembers where each came from.
class ConfigReader {
 public:
  // `place` is the file, or the whole override.
  absl::Status ApplyFile(const YamlValue& root, const std::string& file) {
    place_ = [file](int line) { return absl::StrCat(file, ":", line); };
    if (root.kind == YamlValue::Kind::kNull) {
      return Complain(root.line, "",
                      absl::StrCat("found no keys; allowed: a map with ",
                                   absl::StrJoin(NamesIn(""), ", ")));
    }
    return ApplySection(root, "", root.line);
  }

  absl::Status ApplyOverride(const std::string& text) {
    place_ = [text](int) { return absl::StrCat("--set ", text); };
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Complain(1, "",
                      "found no \"=\" after a key; allowed: key.path=value");
    }
    const std::string path = text.substr(0, equals);
    const std::string value_text = text.substr(equals + 1);
    RV_ASSIGN_OR_RETURN(const YamlValue value,
                        OverrideValue(FindKey(path), value_text));
    const size_t dot = path.rfind('.');
    const std::string section =
        dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string name = path.substr(section.empty() ? 0 : dot + 1);
    if (name.empty() || path[0] == '.') {
      return Complain(1, path, "found no key; allowed: key.path=value");
    }
    return ApplyEntry(section, name, value, 1);
  }

  // Ranges were checked on the way; this is for what goes with what.
  absl::Status CheckWhole(const std::string& file) const {
    const std::optional<ConfigComplaint> complaint = FindComplaint(config_);
    if (!complaint.has_value()) return absl::OkStatus();
    const auto place = places_.find(complaint->key);
    return absl::InvalidArgumentError(
        absl::StrCat(place == places_.end() ? file : place->second, ": ",
                     complaint->key, ": ", complaint->message));
  }

  Config& config() { return config_; }

 private:
  // A text is taken as it is, so that what YAML would take apart, such as
  // [::1]:4000, needs no quotes within the shell's.
  absl::StatusOr<YamlValue> OverrideValue(const KeySpec* key,
                                          const std::string& text) const {
    const bool is_quoted =
        absl::StartsWith(text, "\"") || absl::StartsWith(text, "'");
    const bool as_it_is =
        text.empty() || (key != nullptr && IsTextKey(*key) && !is_quoted);
    if (!as_it_is) return ParseYaml(text, place_(1));
    YamlValue value;
    value.kind = YamlValue::Kind::kScalar;
    value.quoted = true;
    value.text = text;
    return value;
  }

  absl::Status Complain(int line, const std::string& path,
                        absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(place_(line), ": ", path, path.empty() ? "" : ": ", what));
  }

  // `line` is the section's own.
  absl::Status ApplySection(const YamlValue& map, const std::string& section,
                            int line) {
    if (map.kind != YamlValue::Kind::kMap) {
      return Complain(
          line, section,
          absl::StrCat("found ", map.Describe(), "; allowed: a map with ",
                       absl::StrJoin(NamesIn(section), ", ")));
    }
    std::map<std::string, int> lines;
    for (size_t i = 0; i < map.keys.size(); ++i) {
      const YamlValue& key = map.keys[i];
      if (key.kind != YamlValue::Kind::kScalar) {
        return Complain(key.line, section,
                        absl::StrCat("found ", key.Describe(),
                                     " as a key; allowed: a name"));
      }
      const auto [first, is_new] = lines.emplace(key.text, key.line);
      if (!is_new) {
        return Complain(
            key.line, Join(section, key.text),
            absl::StrCat("found the key again, first in line ", first->second,
                         "; allowed: each key once"));
      }
      // Dots would be another spelling of what is a section here.
      const std::string path = Join(section, key.text);
      const bool has_dots = key.text.find('.') != std::string::npos;
      if (has_dots && (FindKey(path) != nullptr || IsSection(path))) {
        const size_t dot = key.text.rfind('.');
        return Complain(
            key.line, path,
            absl::StrCat(
                "found a key with dots; allowed: ", key.text.substr(dot + 1),
                " as a key of the section ", path.substr(0, path.rfind('.'))));
      }
      if (has_dots) return ComplainUnknown(section, key.text, key.line);
      RV_RETURN_IF_ERROR(ApplyEntry(section, key.text, map.items[i], key.line));
    }
    return absl::OkStatus();
  }

  absl::Status ApplyEntry(const std::string& section, const std::string& name,
                          const YamlValue& value, int line) {
    const std::string path = Join(section, name);
    const KeySpec* const key = FindKey(path);
    if (key != nullptr) {
      const absl::Status status = SetKey(*key, value, &config_);
      if (!status.ok()) return Complain(line, path, status.message());
      places_[path] = place_(line);
      return absl::OkStatus();
    }
    if (IsSection(path)) return ApplySection(value, path, line);
    return ComplainUnknown(section, name, line);
  }

  absl::Status ComplainUnknown(const std::string& section,
                               const std::string& name, int line) const {
    // An override may name a section that is a key, or that does not exist:
    // then that is what is wrong.
    if (const KeySpec* const key = FindKey(section)) {
      return Complain(line, section,
                      absl::StrCat("found a key below it, ", name,
                                   "; allowed: ", DescribeAllowed(*key)));
    }
    if (!IsSection(section)) {
      const size_t dot = section.rfind('.');
      return dot == std::string::npos
                 ? ComplainUnknown("", section, line)
                 : ComplainUnknown(section.substr(0, dot),
                                   section.substr(dot + 1), line);
    }
    YamlValue shown;
    shown.kind = YamlValue::Kind::kScalar;
    shown.text = name;
    const std::string nearest = SuggestKey(section, name);
    return Complain(
        line, Join(section, shown.Describe()),
        absl::StrCat("found an unknown key",
                     nearest.empty()
                         ? std::string()
                         : absl::StrCat(" (did you mean ", nearest, "?)"),
                     "; allowed: ", absl::StrJoin(NamesIn(section), ", ")));
  }

  Config config_;
  std::function<std::string(int)> place_;
  std::map<std::string, std::string> places_;  // key path -> place
};

// Of a canonical text.
std::map<std::string, std::string> KeysOf(absl::string_view canonical) {
  std::map<std::string, std::string> keys;
  for (const absl::string_view line :
       absl::StrSplit(canonical, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> key =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    keys.insert(key);
  }
  return keys;
}

std::string ValueIn(const std::map<std::string, std::string>& keys,
                    const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "nothing" : found->second;
}

// A peer's text, as much of it as belongs into a message.
std::string Shown(const std::string& text) {
  constexpr size_t kShown = 60;
  const std::string escaped = absl::CHexEscape(text);
  return escaped.size() <= kShown
             ? escaped
             : absl::StrCat(escaped.substr(0, kShown), "...");
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::InvalidArgumentError(
        ErrnoMessage(errno, path, "read the config"));
  }
  // One byte more than is allowed is enough to be refused, and an endless file
  // such as a device is not read to its end.
  std::string text(kMaxYamlBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) {
    return absl::InvalidArgumentError(
        ErrnoMessage(errno, path, "read the config"));
  }
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

absl::StatusOr<Config> LoadConfig(const std::string& path,
                                  absl::Span<const std::string> overrides) {
  RV_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return ParseConfig(text, path, overrides);
}

absl::StatusOr<Config> ParseConfig(absl::string_view yaml,
                                   const std::string& file,
                                   absl::Span<const std::string> overrides) {
  RV_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(yaml, file));
  ConfigReader reader;
  RV_RETURN_IF_ERROR(reader.ApplyFile(root, file));
  for (const std::string& text : overrides) {
    RV_RETURN_IF_ERROR(reader.ApplyOverride(text));
  }
  Config& config = reader.config();
  if (config.local.run_dir.empty()) {
    config.local.run_dir = absl::StrCat("runs/", config.name);
  }
  RV_RETURN_IF_ERROR(reader.CheckWhole(file));
  return std::move(config);
}

absl::Status CheckConfig(const Config& config) {
  const std::optional<ConfigComplaint> complaint = FindComplaint(config);
  if (!complaint.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(complaint->key, ": ", complaint->message));
}

std::string ToYaml(const Config& config) {
  std::string yaml;
  std::vector<std::string> open;  // the sections that the last line was in
  for (const KeySpec& key : ConfigKeys()) {
    std::vector<std::string> parts = absl::StrSplit(key.path, '.');
    const std::string name = std::move(parts.back());
    parts.pop_back();
    size_t common = 0;
    while (common < open.size() && common < parts.size() &&
           open[common] == parts[common]) {
      ++common;
    }
    for (size_t i = common; i < parts.size(); ++i) {
      absl::StrAppend(&yaml, std::string(2 * i, ' '), parts[i], ":\n");
    }
    absl::StrAppend(&yaml, std::string(2 * parts.size(), ' '), name, ": ",
                    FormatKey(key, config), "\n");
    open = std::move(parts);
  }
  return yaml;
}

std::string CanonicalConfig(const Config& config, bool for_resume) {
  std::map<std::string, std::string>
      lines;  // sorted: the table's order is free
  for (const KeySpec& key : ConfigKeys()) {
    const bool counts = key.scope == KeyScope::kJob ||
                        (key.scope == KeyScope::kResumable && !for_resume);
    if (counts) lines[key.path] = FormatKey(key, config);
  }
  return absl::StrJoin(lines, "\n", absl::PairFormatter("="));
}

std::string ConfigHash(const Config& config, bool for_resume) {
  return Sha256Hex(CanonicalConfig(config, for_resume));
}

std::string DescribeDifferences(absl::string_view a_name, absl::string_view a,
                                absl::string_view b_name, absl::string_view b) {
  constexpr size_t kMaxNamed = 5;
  const std::map<std::string, std::string> ours = KeysOf(a);
  const std::map<std::string, std::string> theirs = KeysOf(b);
  std::set<std::string> keys;
  for (const auto& [key, value] : ours) keys.insert(key);
  for (const auto& [key, value] : theirs) keys.insert(key);
  std::vector<std::string> differences;
  for (const std::string& key : keys) {
    const std::string here = ValueIn(ours, key);
    const std::string there = ValueIn(theirs, key);
    if (here == there) continue;
    differences.push_back(absl::StrCat(Shown(key), " is ", Shown(here), " for ",
                                       a_name, ", ", Shown(there), " for ",
                                       b_name));
  }
  return JoinFirst(differences, kMaxNamed, "; ");
}

}  // namespace rivulet
