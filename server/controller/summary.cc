#include "server/controller/summary.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/num_cores.h"
#include "common/daemon/version.h"

namespace rivulet {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: what is not a number is null.
Json JsonNumber(std::optional<double> value) {
  if (!value.has_value() || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

std::string SummaryJson(const RunPlan& plan, const RunMetrics& metrics,
                        const RunOutcome& outcome) {
  const Config& config = plan.config();
  const RunTotals totals = metrics.Totals();
  const std::optional<Evaluation>& test = metrics.last_evaluation();
  Json json;
  json["status"] = outcome.status;
  if (!outcome.error.empty()) json["error"] = outcome.error;
  json["name"] = config.name;
  json["job"] = outcome.job;
  json["model"] = config.model.name;
  json["data"] = config.data.name;
  json["policy"] = config.compression.policy;
  json["density"] = config.compression.density;
  json["parameters"] = plan.manifest().num_parameters();
  json["steps"] = metrics.step();
  json["epochs"] = metrics.epoch();
  json["test_accuracy"] =
      test.has_value() ? JsonNumber(test->accuracy) : Json();
  json["test_loss"] = test.has_value() ? JsonNumber(test->loss) : Json();
  json["train_loss"] = JsonNumber(metrics.RecentLoss());
  json["train_accuracy"] = JsonNumber(metrics.RecentAccuracy());
  json["seconds"] = totals.seconds;
  json["samples_per_second"] = metrics.SamplesPerSecond();
  json["bytes_up"] = totals.bytes_up;
  json["bytes_down"] = totals.bytes_down;
  json["payload_up"] = totals.payload_up;
  json["payload_down"] = totals.payload_down;
  json["dense_bytes_up"] = metrics.DenseBytesOneWay();
  json["dense_bytes_down"] = metrics.DenseBytesOneWay();
  json["ratio"] = metrics.Ratio();
  json["ratio_steady_up"] = metrics.SteadyUplinkRatio();
  json["voided"] = metrics.voided();
  json["workers"] = config.cluster.workers;
  json["shards"] = config.cluster.shards;
  json["seed"] = config.train.seed;
  json["weights_sha256"] =
      outcome.weights_sha256.empty() ? Json() : Json(outcome.weights_sha256);
  json["version"] = kVersion;
  json["host"] = HostDescription();
  // Text from a peer may hold anything; what is not UTF-8 is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string StatusOfSummary(const std::string& json) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return "";
  const auto status = parsed.find("status");
  return status != parsed.end() && status->is_string()
             ? status->get<std::string>()
             : "";
}

std::string HostDescription() {
  std::string model = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      model = line.substr(colon + 2);
      break;
    }
  }
  const int cores = NumCores();
  return absl::StrCat(model, ", ", cores, cores == 1 ? " core" : " cores");
}

}  // namespace rivulet
