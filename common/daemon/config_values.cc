#include "common/daemon/config_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/daemon/utf8.h"

namespace rivulet {
namespace {

constexpr size_t kMaxListItems = 64;
constexpr size_t kMaxTextBytes = 1024;

absl::Status Refuse(absl::string_view found, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("found ", found, "; allowed: ", allowed));
}

absl::Status Refuse(const KeySpec& key, absl::string_view found) {
  return Refuse(found, DescribeAllowed(key));
}

// "from 1 to 1024", "above 0 and below 1", "" without bounds.
std::string DescribeRange(const KeySpec& key) {
  std::string low, high;
  if (std::isfinite(key.min)) {
    low =
        absl::StrCat(key.above_min ? "above " : "from ", FormatNumber(key.min));
  }
  if (std::isfinite(key.max)) {
    high =
        absl::StrCat(key.below_max ? "below " : "to ", FormatNumber(key.max));
  }
  if (low.empty()) return high;
  if (high.empty()) return low;
  // "above 0 to 1" would read as if 0 were in.
  const bool plain = !key.above_min && !key.below_max;
  return absl::StrCat(low, plain ? " " : (key.below_max ? " and " : ", up "),
                      high);
}

bool InRange(const KeySpec& key, double value) {
  const bool low = key.above_min ? value > key.min : value >= key.min;
  const bool high = key.below_max ? value < key.max : value <= key.max;
  return low && high && std::isfinite(value);
}

// [+-]digits without a leading zero: 010 means 8 to some YAML readers.
bool ReadWhole(const std::string& text, int64_t* value) {
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const std::string digits = text.substr(sign);
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return false;
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit)) {
    return false;
  }
  return absl::SimpleAtoi(text, value);
}

// Decimal notation only: SimpleAtod alone would take "nan" and "inf" too.
bool ReadNumber(const std::string& text, double* value) {
  bool digit = false;
  for (const char c : text) {
    digit = digit || absl::ascii_isdigit(c);
    if (!absl::ascii_isdigit(c) &&
        absl::string_view("+-.eE").find(c) == absl::string_view::npos) {
      return false;
    }
  }
  return digit && absl::SimpleAtod(text, value) && std::isfinite(*value);
}

struct DurationUnit {
  const char* name;
  absl::Duration length;
};

// Longest first: printing takes the first that divides.
const DurationUnit kUnits[] = {{"h", absl::Hours(1)},
                               {"min", absl::Minutes(1)},
                               {"s", absl::Seconds(1)},
                               {"ms", absl::Milliseconds(1)}};

bool ReadDuration(const std::string& text, absl::Duration* value) {
  const size_t end = text.find_first_not_of("0123456789");
  int64_t count = 0;
  // Nine digits of any unit are far from overflow.
  if (end == 0 || end == std::string::npos || end > 9 ||
      !absl::SimpleAtoi(text.substr(0, end), &count)) {
    return false;
  }
  for (const DurationUnit& unit : kUnits) {
    if (text.substr(end) != unit.name) continue;
    *value = count * unit.length;
    return true;
  }
  return false;
}

bool ReadPlain(const YamlValue& value, int64_t* out) {
  return ReadWhole(value.text, out);
}
bool ReadPlain(const YamlValue& value, double* out) {
  return ReadNumber(value.text, out);
}
bool ReadPlain(const YamlValue& value, absl::Duration* out) {
  return ReadDuration(value.text, out);
}
bool ReadPlain(const YamlValue& value, bool* out) {
  *out = value.text == "true";
  return *out || value.text == "false";
}

// A number, bool or duration; these are never quoted.
template <typename T>
absl::Status Read(const KeySpec& key, const YamlValue& value, T* out) {
  if (value.kind != YamlValue::Kind::kScalar || value.quoted ||
      !ReadPlain(value, out)) {
    return Refuse(key, value.Describe());
  }
  return absl::OkStatus();
}

absl::Status Read(const KeySpec& key, const YamlValue& value,
                  std::string* out) {
  if (value.kind != YamlValue::Kind::kScalar) {
    return Refuse(key, value.Describe());
  }
  *out = value.text;
  return absl::OkStatus();
}

template <typename T>
absl::Status Read(const KeySpec& key, const YamlValue& value,
                  std::vector<T>* out) {
  if (value.kind != YamlValue::Kind::kList) {
    return Refuse(key, value.Describe());
  }
  out->clear();
  for (const YamlValue& item : value.items) {
    T element{};
    RV_RETURN_IF_ERROR(Read(key, item, &element));
    out->push_back(element);
  }
  return absl::OkStatus();
}

absl::Status Check(const KeySpec&, bool) { return absl::OkStatus(); }

absl::Status Check(const KeySpec& key, int64_t value) {
  const bool listed =
      key.numbers.empty() || std::find(key.numbers.begin(), key.numbers.end(),
                                       value) != key.numbers.end();
  if (listed && InRange(key, static_cast<double>(value))) {
    return absl::OkStatus();
  }
  return Refuse(key, absl::StrCat(value));
}

absl::Status Check(const KeySpec& key, double value) {
  if (InRange(key, value)) return absl::OkStatus();
  return Refuse(key, FormatNumber(value));
}

absl::Status Check(const KeySpec& key, absl::Duration value) {
  const bool whole = value % absl::Milliseconds(1) == absl::ZeroDuration();
  if (whole && InRange(key, absl::ToDoubleSeconds(value))) {
    return absl::OkStatus();
  }
  return Refuse(key, absl::FormatDuration(value));
}

bool IsName(const std::string& text) {
  const auto ok = [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 100 && text[0] != '.' &&
         text[0] != '-' && std::all_of(text.begin(), text.end(), ok);
}

bool HasForm(TextForm form, const std::string& text) {
  switch (form) {
    case TextForm::kFree:
      return true;
    case TextForm::kName:
      return IsName(text);
    case TextForm::kAddress:
      return IsAddress(text);
    case TextForm::kOptionalAddress:
      return text.empty() || IsAddress(text);
  }
  return false;
}

bool Contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

absl::Status Check(const KeySpec& key, const std::string& value) {
  YamlValue shown;
  shown.kind = YamlValue::Kind::kScalar;
  shown.quoted = true;
  shown.text = value;
  if (Contains(key.later, value)) {
    return Refuse(
        absl::StrCat(shown.Describe(), ", which is not in this version"),
        DescribeAllowed(key));
  }
  if (!key.choices.empty()) {
    if (Contains(key.choices, value)) return absl::OkStatus();
    return Refuse(key, shown.Describe());
  }
  if (value.size() > kMaxTextBytes) {
    return Refuse(absl::StrCat("a text of ", value.size(), " bytes"),
                  absl::StrCat("at most ", kMaxTextBytes));
  }
  if (!IsPlainText(value) || !HasForm(key.form, value)) {
    return Refuse(key, shown.Describe());
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Check(const KeySpec& key, const std::vector<T>& value) {
  if (value.size() > kMaxListItems) {
    return Refuse(absl::StrCat("a list of ", value.size(), " items"),
                  absl::StrCat("at most ", kMaxListItems));
  }
  for (const T& element : value) RV_RETURN_IF_ERROR(Check(key, element));
  return absl::OkStatus();
}

std::string Format(const KeySpec&, bool value) {
  return value ? "true" : "false";
}
std::string Format(const KeySpec&, int64_t value) {
  return absl::StrCat(value);
}
std::string Format(const KeySpec&, double value) { return FormatNumber(value); }
std::string Format(const KeySpec&, absl::Duration value) {
  return FormatDurationValue(value);
}
std::string Format(const KeySpec& key, const std::string& value) {
  if (!key.choices.empty()) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}
template <typename T>
std::string Format(const KeySpec& key, const std::vector<T>& value) {
  return absl::StrCat("[",
                      absl::StrJoin(value, ", ",
                                    [&](std::string* out, const T& element) {
                                      out->append(Format(key, element));
                                    }),
                      "]");
}

// "8, 16 or 32".
template <typename T>
std::string Alternatives(const std::vector<T>& items) {
  if (items.size() == 1) return absl::StrCat(items[0]);
  const auto last = items.end() - 1;
  return absl::StrCat(absl::StrJoin(items.begin(), last, ", "), " or ", *last);
}

std::string DescribeText(TextForm form) {
  switch (form) {
    case TextForm::kFree:
      return "text";
    case TextForm::kName:
      return "at most 100 letters, digits, \".\", \"_\" and \"-\"";
    case TextForm::kAddress:
      return "host:port or \"[IPv6]:port\"";
    case TextForm::kOptionalAddress:
      return "host:port, \"[IPv6]:port\" or empty";
  }
  return "";
}

// A duration's bounds, which the table has in seconds.
std::string DescribeDuration(const KeySpec& key) {
  return absl::StrCat("a whole number and a unit (ms, s, min, h), from ",
                      FormatDurationValue(absl::Seconds(key.min)), " to ",
                      FormatDurationValue(absl::Seconds(key.max)));
}

template <typename T>
std::string Describe(const KeySpec& key) {
  if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (!key.numbers.empty()) return Alternatives(key.numbers);
    return absl::StrCat("a whole number ", DescribeRange(key));
  } else if constexpr (std::is_same_v<T, double>) {
    return absl::StrCat("a number ", DescribeRange(key));
  } else if constexpr (std::is_same_v<T, absl::Duration>) {
    return DescribeDuration(key);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return key.choices.empty() ? DescribeText(key.form)
                               : Alternatives(key.choices);
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return absl::StrCat("a list [a, b, ...] of whole numbers ",
                        DescribeRange(key));
  } else {
    return absl::StrCat("a list [a, b, ...] of numbers ", DescribeRange(key));
  }
}

// The field of a config that is only read. Accessors take a mutable one, since
// the table holds one accessor a key; none of them changes anything.
template <typename T>
const T& FieldOf(KeySpec::Access<T> access, const Config& config) {
  return *access(const_cast<Config&>(config));
}

}  // namespace

std::string FormatDurationValue(absl::Duration value) {
  if (value == absl::ZeroDuration()) return "0s";
  for (const DurationUnit& unit : kUnits) {
    if (value % unit.length == absl::ZeroDuration()) {
      return absl::StrCat(value / unit.length, unit.name);
    }
  }
  return absl::StrCat(absl::ToInt64Milliseconds(value), "ms");
}

absl::Status SetKey(const KeySpec& key, const YamlValue& value,
                    Config* config) {
  RV_RETURN_IF_ERROR(
      std::visit([&](auto access) { return Read(key, value, access(*config)); },
                 key.field));
  return CheckKey(key, *config);
}

absl::Status CheckKey(const KeySpec& key, const Config& config) {
  return std::visit(
      [&](auto access) { return Check(key, FieldOf(access, config)); },
      key.field);
}

bool IsTextKey(const KeySpec& key) {
  return std::holds_alternative<KeySpec::Access<std::string>>(key.field);
}

std::string FormatKey(const KeySpec& key, const Config& config) {
  return std::visit(
      [&](auto access) { return Format(key, FieldOf(access, config)); },
      key.field);
}

std::string DescribeAllowed(const KeySpec& key) {
  return std::visit(
      [&](auto access) {
        using T =
            std::remove_pointer_t<decltype(access(std::declval<Config&>()))>;
        return Describe<T>(key);
      },
      key.field);
}

std::string FormatNumber(double value) {
  const double size = std::abs(value);
  // Exponents only where zeros would have to be counted.
  const bool fixed = value == 0 || (size >= 1e-6 && size < 1e15);
  char buffer[64];
  char* const end = buffer + sizeof(buffer);
  const auto result =
      fixed ? std::to_chars(buffer, end, value, std::chars_format::fixed)
            : std::to_chars(buffer, end, value);
  return std::string(buffer, result.ptr);
}

bool IsAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  int port = 0;
  if (digits.empty() || digits.size() > 5 ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return false;
  }
  const bool bracketed =
      host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  return std::all_of(host.begin(), host.end(), [&](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' ||
           (bracketed && (c == ':' || c == '%'));
  });
}

}  // namespace rivulet
