#include "worker/lab/experiment_file.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/nearest_name.h"
#include "common/base/status_macros.h"
#include "common/daemon/config.h"
#include "common/daemon/config_keys.h"
#include "common/daemon/config_values.h"
#include "common/daemon/text_file.h"
#include "common/daemon/yaml_tree.h"

namespace rivulet {
namespace {

const std::vector<std::string>& TopKeys() {
  static const auto* const keys = new std::vector<std::string>{
      "base", "out", "csv", "seeds", "set", "arms", "grid"};
  return *keys;
}

bool IsName(const std::string& text) {
  return !text.empty() && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), IsNameCharacter);
}

// Puts one file's YAML into an Experiment.
class ExperimentReader {
 public:
  explicit ExperimentReader(std::string file) : file_(std::move(file)) {}

  absl::StatusOr<Experiment> Read(const YamlValue& root) {
    Experiment experiment;
    experiment.file = file_;
    RV_ASSIGN_OR_RETURN(const auto entries, Entries("", root, root.line));
    for (const Entry& entry : entries) {
      if (std::find(TopKeys().begin(), TopKeys().end(), entry.name) ==
          TopKeys().end()) {
        return Complain(
            entry.line, entry.name,
            absl::StrCat("found an unknown key (did you mean ",
                         NearestName(entry.name, TopKeys()),
                         "?); allowed: ", absl::StrJoin(TopKeys(), ", ")));
      }
    }
    const auto find = [&](const char* name) -> const Entry* {
      const auto it =
          std::find_if(entries.begin(), entries.end(),
                       [&](const Entry& e) { return e.name == name; });
      return it == entries.end() ? nullptr : &*it;
    };
    for (const char* name : {"base", "out", "csv", "seeds", "arms"}) {
      if (find(name) == nullptr) {
        return Complain(root.line, name,
                        "found no such key; it has to be there");
      }
    }
    RV_ASSIGN_OR_RETURN(const std::string base, PathOf(*find("base")));
    experiment.base =
        (std::filesystem::path(file_).parent_path() / base).lexically_normal();
    RV_ASSIGN_OR_RETURN(experiment.out, PathOf(*find("out")));
    RV_ASSIGN_OR_RETURN(experiment.csv, PathOf(*find("csv")));
    RV_ASSIGN_OR_RETURN(experiment.seeds, SeedsOf(*find("seeds")));
    if (const Entry* set = find("set")) {
      RV_ASSIGN_OR_RETURN(experiment.set,
                          SettingsOf("set", *set->value, set->line));
    }
    if (const Entry* grid = find("grid")) {
      RV_ASSIGN_OR_RETURN(experiment.grid, GridOf(*grid));
    }
    RV_ASSIGN_OR_RETURN(experiment.arms,
                        ArmsOf(*find("arms"), experiment.grid));
    return experiment;
  }

 private:
  struct Entry {
    std::string name;
    int line = 1;
    const YamlValue* value = nullptr;
  };

  absl::Status Complain(int line, const std::string& path,
                        absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        file_, ":", line, ": ", path, path.empty() ? "" : ": ", what));
  }

  // Of a map, with each key once.
  absl::StatusOr<std::vector<Entry>> Entries(const std::string& path,
                                             const YamlValue& map,
                                             int line) const {
    if (map.kind != YamlValue::Kind::kMap) {
      return Complain(
          line, path,
          absl::StrCat(
              "found ", map.Describe(), "; allowed: a map",
              path.empty()
                  ? absl::StrCat(" with ", absl::StrJoin(TopKeys(), ", "))
                  : ""));
    }
    std::vector<Entry> entries;
    std::map<std::string, int> lines;
    for (size_t i = 0; i < map.keys.size(); ++i) {
      const YamlValue& key = map.keys[i];
      if (key.kind != YamlValue::Kind::kScalar) {
        return Complain(key.line, path,
                        absl::StrCat("found ", key.Describe(),
                                     " as a key; allowed: a name"));
      }
      const auto [first, is_new] = lines.emplace(key.text, key.line);
      if (!is_new) {
        return Complain(
            key.line, Join(path, key.Describe()),
            absl::StrCat("found the key again, first in line ", first->second,
                         "; allowed: each key once"));
      }
      entries.push_back({key.text, key.line, &map.items[i]});
    }
    return entries;
  }

  static std::string Join(const std::string& path, const std::string& name) {
    return path.empty() ? name : absl::StrCat(path, ": ", name);
  }

  absl::StatusOr<std::string> PathOf(const Entry& entry) const {
    if (entry.value->kind != YamlValue::Kind::kScalar ||
        entry.value->text.empty()) {
      return Complain(
          entry.line, entry.name,
          absl::StrCat("found ", entry.value->Describe(), "; allowed: a path"));
    }
    return entry.value->text;
  }

  absl::StatusOr<std::vector<int64_t>> SeedsOf(const Entry& entry) const {
    const absl::StatusOr<std::vector<std::string>> texts =
        ValuesOf("seeds", *FindKey("train.seed"), *entry.value, entry.line);
    if (!texts.ok()) return texts.status();
    std::vector<int64_t> seeds;
    for (const std::string& text : *texts) {
      int64_t seed = 0;
      if (!absl::SimpleAtoi(text, &seed)) {
        return Complain(entry.line, "seeds", absl::StrCat("found ", text));
      }
      seeds.push_back(seed);
    }
    return seeds;
  }

  // The value as a config prints it.
  absl::StatusOr<std::string> ValueOf(const std::string& path,
                                      const KeySpec& key,
                                      const YamlValue& value, int line) const {
    Config scratch;
    if (const absl::Status status = SetKey(key, value, &scratch);
        !status.ok()) {
      return Complain(line, path, status.message());
    }
    return FormatKey(key, scratch);
  }

  // Those of a list, each once, at least one.
  absl::StatusOr<std::vector<std::string>> ValuesOf(const std::string& path,
                                                    const KeySpec& key,
                                                    const YamlValue& list,
                                                    int line) const {
    if (list.kind != YamlValue::Kind::kList || list.items.empty()) {
      return Complain(
          line, path,
          absl::StrCat("found ",
                       list.items.empty() && list.kind == YamlValue::Kind::kList
                           ? "an empty list"
                           : list.Describe(),
                       "; allowed: a list of values, each ",
                       DescribeAllowed(key)));
    }
    std::vector<std::string> values;
    for (const YamlValue& item : list.items) {
      RV_ASSIGN_OR_RETURN(std::string value,
                          ValueOf(path, key, item, item.line));
      if (std::find(values.begin(), values.end(), value) != values.end()) {
        return Complain(
            item.line, path,
            absl::StrCat("found ", value, " again; allowed: each value once"));
      }
      values.push_back(std::move(value));
    }
    return values;
  }

  absl::StatusOr<const KeySpec*> KeyOf(const std::string& path,
                                       const Entry& entry) const {
    const std::string& name = entry.name;
    if (const std::string by = GivenBy(name); !by.empty()) {
      return Complain(entry.line, Join(path, name),
                      absl::StrCat("is given by ", by, " here"));
    }
    if (const KeySpec* const key = FindKey(name)) return key;
    if (IsSection(name)) {
      return Complain(
          entry.line, Join(path, name),
          absl::StrCat("found a section; allowed: a whole key, such as ", name,
                       ".", NamesIn(name).front()));
    }
    YamlValue shown;
    shown.kind = YamlValue::Kind::kScalar;
    shown.text = name;
    std::vector<std::string> known;
    for (const KeySpec& key : ConfigKeys()) known.push_back(key.path);
    return Complain(
        entry.line, Join(path, shown.Describe()),
        absl::StrCat("found an unknown key (did you mean ",
                     NearestName(name, known),
                     "?); allowed: whole keys of the config, such as "
                     "compression.density (rivulet check --keys lists them)"));
  }

  absl::StatusOr<std::vector<Setting>> SettingsOf(const std::string& path,
                                                  const YamlValue& map,
                                                  int line) const {
    std::vector<Setting> settings;
    // An arm that changes nothing.
    if (map.kind == YamlValue::Kind::kNull) return settings;
    RV_ASSIGN_OR_RETURN(const auto entries, Entries(path, map, line));
    for (const Entry& entry : entries) {
      RV_ASSIGN_OR_RETURN(const KeySpec* const key, KeyOf(path, entry));
      RV_ASSIGN_OR_RETURN(
          std::string value,
          ValueOf(Join(path, entry.name), *key, *entry.value, entry.line));
      settings.push_back({entry.name, std::move(value)});
    }
    return settings;
  }

  absl::StatusOr<std::vector<Experiment::GridKey>> GridOf(
      const Entry& grid) const {
    std::vector<Experiment::GridKey> keys;
    if (grid.value->kind == YamlValue::Kind::kNull) return keys;
    RV_ASSIGN_OR_RETURN(const auto entries,
                        Entries("grid", *grid.value, grid.line));
    for (const Entry& entry : entries) {
      RV_ASSIGN_OR_RETURN(const KeySpec* const key, KeyOf("grid", entry));
      RV_ASSIGN_OR_RETURN(
          std::vector<std::string> values,
          ValuesOf(Join("grid", entry.name), *key, *entry.value, entry.line));
      keys.push_back({entry.name, std::move(values)});
    }
    return keys;
  }

  absl::StatusOr<std::vector<Experiment::Arm>> ArmsOf(
      const Entry& arms, const std::vector<Experiment::GridKey>& grid) const {
    RV_ASSIGN_OR_RETURN(const auto entries,
                        Entries("arms", *arms.value, arms.line));
    if (entries.empty()) {
      return Complain(arms.line, "arms", "found none; allowed: at least one");
    }
    std::vector<Experiment::Arm> result;
    for (const Entry& entry : entries) {
      const std::string path = Join("arms", entry.name);
      if (!IsName(entry.name)) {
        return Complain(entry.line, "arms",
                        absl::StrCat("found an arm's name that is not one of "
                                     "letters, digits, \".\", \"_\" and \"-\"; "
                                     "allowed: such as dgc_c1"));
      }
      RV_ASSIGN_OR_RETURN(std::vector<Setting> settings,
                          SettingsOf(path, *entry.value, entry.line));
      for (const Setting& setting : settings) {
        for (const Experiment::GridKey& key : grid) {
          if (key.key != setting.key) continue;
          return Complain(entry.line, Join(path, setting.key),
                          "found a key that the grid sets too; allowed: one of "
                          "them");
        }
      }
      result.push_back({entry.name, std::move(settings)});
    }
    return result;
  }

  const std::string file_;
};

absl::StatusOr<std::string> ReadYaml(const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  // Whatever the reason, a retry cannot help.
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  return text;
}

}  // namespace

std::string Setting::Text() const { return absl::StrCat(key, "=", value); }

std::vector<std::string> Experiment::GridKeys() const {
  std::vector<std::string> keys;
  keys.reserve(grid.size());
  for (const GridKey& key : grid) keys.push_back(key.key);
  return keys;
}

absl::StatusOr<bool> IsExperiment(const std::string& path) {
  RV_ASSIGN_OR_RETURN(const std::string text, ReadYaml(path));
  RV_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, path));
  return std::any_of(root.keys.begin(), root.keys.end(),
                     [](const YamlValue& key) { return key.text == "arms"; });
}

absl::StatusOr<Experiment> LoadExperiment(const std::string& path) {
  RV_ASSIGN_OR_RETURN(const std::string text, ReadYaml(path));
  return ParseExperiment(text, path);
}

absl::StatusOr<Experiment> ParseExperiment(absl::string_view yaml,
                                           const std::string& file) {
  RV_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(yaml, file));
  return ExperimentReader(file).Read(root);
}

std::string GivenBy(const std::string& key) {
  if (key == "train.seed") return "seeds";
  if (key == "local.run_dir") return "out";
  return "";
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace rivulet
