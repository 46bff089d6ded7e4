// The table of all config keys: path, field, unit, range, scope and meaning.
// The parser, the printer, the hash and the reference all read this table, so a
// key that is added here is known everywhere.

#ifndef RIVULET_COMMON_DAEMON_CONFIG_KEYS_H_
#define RIVULET_COMMON_DAEMON_CONFIG_KEYS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/daemon/config.h"

namespace rivulet {

// See config.h.
enum class KeyScope { kJob, kLocal, kResumable };

// What a text value must look like.
enum class TextForm {
  kFree,             // anything printable
  kName,             // letters, digits, '.', '_', '-'; not first a '.' or '-'
  kAddress,          // host:port, [v6]:port
  kOptionalAddress,  // the same, or empty
};

// Immutable value.
struct KeySpec {
  template <typename T>
  using Access = T* (*)(Config&);
  using Field =
      std::variant<Access<bool>, Access<int64_t>, Access<double>,
                   Access<std::string>, Access<absl::Duration>,
                   Access<std::vector<int64_t>>, Access<std::vector<double>>>;

  std::string path;  // "optimizer.schedule.kind"
  Field field;
  KeyScope scope = KeyScope::kJob;
  std::string unit;  // empty: none
  std::string doc;   // one sentence, Markdown
  // Numbers, elements of lists, durations in seconds.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;            // min itself is not allowed
  bool below_max = false;            // max itself is not allowed
  std::vector<int64_t> numbers;      // if not empty: the only whole numbers
  std::vector<std::string> choices;  // if not empty: the only texts
  std::vector<std::string> later;    // texts that a later version will take
  TextForm form = TextForm::kFree;
};

// All keys, section by section; within a section in the order of config.h.
const std::vector<KeySpec>& ConfigKeys();

// Null when there is no such key.
const KeySpec* FindKey(absl::string_view path);

// Names directly below `section` ("" is the top level): keys and sections.
std::vector<std::string> NamesIn(absl::string_view section);

// Whether keys start with `path` and a dot.
bool IsSection(absl::string_view path);

// The known name nearest to the unknown `name` in `section`: another name
// there, or the whole path of a key of that name elsewhere. Empty when nothing
// is near.
std::string SuggestKey(absl::string_view section, absl::string_view name);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CONFIG_KEYS_H_
