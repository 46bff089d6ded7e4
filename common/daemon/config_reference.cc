// docs/configuration.md, from the tables of keys and rules.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/daemon/config.h"
#include "common/daemon/config_keys.h"
#include "common/daemon/config_rules.h"
#include "common/daemon/config_values.h"

namespace rivulet {
namespace {

constexpr char kIntroduction[] =
    R"(# Configuration

One YAML file configures every process of a run. This page is made from the
parser's own table by `rivulet check --keys`; do not edit it.

- Every key has a default; a file holds what differs from it. `rivulet check FILE`
  says what a file amounts to, and a run's folder holds it in `config.yaml`.
- `--set key.path=value` on a command line overrides the file.
- Reading is strict. An unknown, repeated or ill-typed key, a value out of range
  and a combination that is known to be broken are refused with file, line, key,
  what was found and what is allowed. Anchors, aliases, tags and a second
  document are refused too.
- Whole numbers have no fraction, numbers are decimal and finite, switches are
  `true` or `false`, and none of them is quoted. Durations are a whole number and
  a unit: `500ms`, `30s`, `5min`, `1h`. Sizes are plain numbers in the unit given.

Scope: a `job` key must be equal in every process of a run (the processes compare
a hash of them); a `local` key may differ between processes; a `resumable` key
belongs to the job, but may change when a run is resumed.
)";

const char* ScopeName(KeyScope scope) {
  switch (scope) {
    case KeyScope::kJob:
      return "job";
    case KeyScope::kLocal:
      return "local";
    case KeyScope::kResumable:
      return "resumable";
  }
  return "";
}

std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}});
}

// "compression.down" of "compression.down.density"; "" at the top level.
std::string SectionOf(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string Row(const KeySpec& key, const Config& defaults) {
  std::string doc = key.doc;
  if (!key.later.empty()) {
    absl::StrAppend(&doc, " (A later version will take");
    for (size_t i = 0; i < key.later.size(); ++i) {
      absl::StrAppend(&doc, i == 0 ? " `" : " and `", key.later[i], "`");
    }
    absl::StrAppend(&doc, ".)");
  }
  return absl::StrCat("| `", key.path, "` | `", FormatKey(key, defaults),
                      "` | ", Cell(DescribeAllowed(key)), " | ", key.unit,
                      " | ", ScopeName(key.scope), " | ", Cell(doc), " |\n");
}

}  // namespace

std::string ConfigReference() {
  const Config defaults;
  std::string page = kIntroduction;
  std::string section = "none yet";
  for (const KeySpec& key : ConfigKeys()) {
    if (SectionOf(key.path) != section) {
      section = SectionOf(key.path);
      absl::StrAppend(
          &page, "\n## ",
          section.empty() ? "Top level" : absl::StrCat("`", section, "`"),
          "\n\n| key | default | allowed | unit | scope | meaning |\n"
          "|---|---|---|---|---|---|\n");
    }
    absl::StrAppend(&page, Row(key, defaults));
  }
  absl::StrAppend(&page,
                  "\n## What goes with what\n\n"
                  "Refused, with the reason, by every process and by "
                  "`rivulet check`:\n\n| key | must be |\n|---|---|\n");
  for (const ConfigRule& rule : ConfigRules()) {
    absl::StrAppend(&page, "| `", rule.key, "` | ", Cell(rule.need), " |\n");
  }
  absl::StrAppend(
      &page,
      "\n`compression.density` must also fit the length of the run: at least "
      "`min_moves` / steps,\nor 1 where that is more, since an entry is sent "
      "about once in 1 / density steps.\nPolicies `none` and `lossless` do not "
      "look at any density.\n");
  return page;
}

}  // namespace rivulet
