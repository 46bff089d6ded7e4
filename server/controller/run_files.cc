#include "server/controller/run_files.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/version.h"
#include "models/checkpoint/tensor_file.h"

namespace rivulet {
namespace {

using Json = nlohmann::ordered_json;

std::string Number(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%.6g", *value) : "";
}

// JSON has no NaN: what is not a number is null.
Json JsonNumber(std::optional<double> value) {
  if (!value.has_value() || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

std::string MetricsHeader() {
  return "seconds,step,epoch,train_loss,train_accuracy,test_loss,test_accuracy,"
         "samples_per_second,bytes_up,bytes_down,payload_up,payload_down,ratio,"
         "voided";
}

std::string MetricsLine(const MetricsRow& row) {
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  if (row.test.has_value()) {
    test_loss = row.test->loss;
    test_accuracy = row.test->accuracy;
  }
  return absl::StrJoin(
      std::vector<std::string>{
          Number(row.seconds), absl::StrCat(row.step), Number(row.epoch),
          Number(row.train_loss), Number(row.train_accuracy), Number(test_loss),
          Number(test_accuracy), Number(row.samples_per_second),
          absl::StrCat(row.totals.bytes_up),
          absl::StrCat(row.totals.bytes_down),
          absl::StrCat(row.totals.payload_up),
          absl::StrCat(row.totals.payload_down), Number(row.ratio),
          absl::StrCat(row.voided)},
      ",");
}

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path,
                                              int64_t keep_until) {
  std::string kept = absl::StrCat(MetricsHeader(), "\n");
  if (keep_until > 0) {
    const absl::StatusOr<std::string> old = ReadTextFile(path);
    if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
    const std::string text = old.ok() ? *old : "";
    // A line without its end was cut by whatever ended the earlier part.
    const absl::string_view whole(text.data(), text.rfind('\n') + 1);
    for (absl::string_view line : absl::StrSplit(whole, '\n')) {
      const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
      int64_t step = 0;
      if (fields.size() > 1 && absl::SimpleAtoi(fields[1], &step) &&
          step <= keep_until) {
        absl::StrAppend(&kept, line, "\n");
      }
    }
  }
  RV_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  return MetricsFile(path);
}

absl::Status MetricsFile::Append(const MetricsRow& row) {
  const std::string line = absl::StrCat(MetricsLine(row), "\n");
  std::FILE* file = std::fopen(path_.c_str(), "ae");
  const bool wrote = file != nullptr && std::fwrite(line.data(), 1, line.size(),
                                                    file) == line.size();
  int error = errno;
  if (file != nullptr && std::fclose(file) != 0 && wrote) {
    error = errno;
    return absl::UnavailableError(ErrnoMessage(error, path_, "write"));
  }
  if (!wrote) {
    return absl::UnavailableError(ErrnoMessage(error, path_, "write"));
  }
  return absl::OkStatus();
}

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

std::string ProgressJson(const RunTotals& totals) {
  Json json;
  json["bytes_up"] = totals.bytes_up;
  json["bytes_down"] = totals.bytes_down;
  json["payload_up"] = totals.payload_up;
  json["payload_down"] = totals.payload_down;
  json["steady_bytes_up"] = totals.steady_bytes_up;
  json["steady_worker_steps"] = totals.steady_worker_steps;
  json["samples"] = totals.samples;
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
    if (found == json.end() || !found->is_number_integer()) {
      return absl::DataLossError(absl::StrCat(path, ": no integer ", key));
    }
    *value = found->get<int64_t>();
  }
  const auto seconds = json.find("seconds");
  if (seconds == json.end() || !seconds->is_number()) {
    return absl::DataLossError(absl::StrCat(path, ": no number seconds"));
  }
  totals.seconds = seconds->get<double>();
  return totals;
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
  const unsigned cores = std::thread::hardware_concurrency();
  return absl::StrCat(model, ", ", cores, cores == 1 ? " core" : " cores");
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int error = errno;
    const std::string message = ErrnoMessage(error, path, "open");
    return error == ENOENT ? absl::NotFoundError(message)
                           : absl::UnavailableError(message);
  }
  std::ostringstream text;
  errno = 0;
  text << file.rdbuf();
  if (text.bad()) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot read: ", std::strerror(errno)));
  }
  return std::move(text).str();
}

}  // namespace rivulet
