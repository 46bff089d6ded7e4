// One value of the config: read from YAML, checked against its key's range,
// printed. Errors say "found X; allowed Y"; callers put the place before it.

#ifndef RIVULET_COMMON_DAEMON_CONFIG_VALUES_H_
#define RIVULET_COMMON_DAEMON_CONFIG_VALUES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/daemon/config.h"
#include "common/daemon/config_keys.h"
#include "common/daemon/yaml_tree.h"

namespace rivulet {

// Sets the key's field of `config`. Types are strict: whole numbers have no
// fraction, numbers are finite and unquoted, bools are true or false, durations
// are a whole number and a unit (ms, s, min, h). InvalidArgument otherwise, or
// when CheckKey refuses it; the field is then unspecified.
absl::Status SetKey(const KeySpec& key, const YamlValue& value, Config* config);

// InvalidArgument when the field's value is outside the key's range or choices.
absl::Status CheckKey(const KeySpec& key, const Config& config);

// The field's value as YAML that SetKey reads back to the same value.
std::string FormatKey(const KeySpec& key, const Config& config);

// Whether its value is one text.
bool IsTextKey(const KeySpec& key);

// What a value may be, for messages and the reference: "a whole number from 1
// to 1024", "batch or group".
std::string DescribeAllowed(const KeySpec& key);

// The value with the longest unit that divides it, as a config takes it:
// "90s", "2min".
std::string FormatDurationValue(absl::Duration value);

// The shortest text that reads back as `value`.
std::string FormatNumber(double value);

// Whether `text` is host:port or [v6]:port with a port from 0 to 65535.
bool IsAddress(absl::string_view text);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CONFIG_VALUES_H_
