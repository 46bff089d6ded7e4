#include "server/controller/progress_file.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

using Json = nlohmann::ordered_json;

// So that sums stay far from overflow.
constexpr uint64_t kMostCounted = uint64_t{1} << 60;

}  // namespace

std::string ProgressJson(const RunTotals& totals) {
  Json json;
  json["bytes_up"] = totals.bytes_up;
  json["bytes_down"] = totals.bytes_down;
  json["payload_up"] = totals.payload_up;
  json["payload_down"] = totals.payload_down;
  json["steady_bytes_up"] = totals.steady_bytes_up;
  json["steady_worker_steps"] = totals.steady_worker_steps;
  json["samples"] = totals.samples;
  json["counted_from"] = totals.counted_from;
  json["seconds"] = totals.seconds;
  return json.dump(2) + "\n";
}

absl::StatusOr<RunTotals> ParseProgressJson(const std::string& path,
                                            const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": not a JSON object"));
  }
  RunTotals totals;
  const std::pair<const char*, int64_t*> integers[] = {
      {"bytes_up", &totals.bytes_up},
      {"bytes_down", &totals.bytes_down},
      {"payload_up", &totals.payload_up},
      {"payload_down", &totals.payload_down},
      {"steady_bytes_up", &totals.steady_bytes_up},
      {"steady_worker_steps", &totals.steady_worker_steps},
      {"samples", &totals.samples}};
  for (const auto& [key, value] : integers) {
    const auto found = json.find(key);
    // What is not negative is kept as unsigned.
    if (found == json.end() || !found->is_number_unsigned() ||
        found->get<uint64_t>() > kMostCounted) {
      return absl::DataLossError(absl::StrCat(path, ": no integer ", key,
                                              " from 0 to ", kMostCounted));
    }
    *value = static_cast<int64_t>(found->get<uint64_t>());
  }
  // Older files count from the start.
  if (const auto from = json.find("counted_from"); from != json.end()) {
    if (!from->is_number_unsigned() || from->get<uint64_t>() > kMostCounted) {
      return absl::DataLossError(absl::StrCat(
          path, ": counted_from is no integer from 0 to ", kMostCounted));
    }
    totals.counted_from = static_cast<int64_t>(from->get<uint64_t>());
  }
  const auto seconds = json.find("seconds");
  if (seconds == json.end() || !seconds->is_number() ||
      seconds->get<double>() < 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": no number seconds of at least 0"));
  }
  totals.seconds = seconds->get<double>();
  return totals;
}

}  // namespace rivulet
