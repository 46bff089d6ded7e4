// Whatever the text, a config is refused with a message or read to a value that
// its own YAML reads back to.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/daemon/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = rivulet::ParseConfig(text, "fuzz.yaml", {});
  if (!config.ok()) {
    RV_CHECK(absl::IsInvalidArgument(config.status()))
        << config.status().ToString();
    RV_CHECK(absl::StartsWith(config.status().message(), "fuzz.yaml:"))
        << config.status().ToString();
    return 0;
  }
  const std::string yaml = rivulet::ToYaml(*config);
  const auto again = rivulet::ParseConfig(yaml, "again.yaml", {});
  RV_CHECK(again.ok()) << again.status().ToString() << "\n" << yaml;
  RV_CHECK(rivulet::ToYaml(*again) == yaml) << yaml;
  return 0;
}
