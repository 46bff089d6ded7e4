// rivulet bench: how fast this machine is.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errno_status.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "models/bench_model.h"
#include "models/checkpoint/atomic_file.h"
#include "models/manifest/manifest.h"
#include "nlohmann/json.hpp"
#include "worker/cli/commands.h"

namespace rivulet {
namespace {

struct BenchArguments {
  BenchOptions options;
  std::vector<int> threads =
      NumCores() == 1 ? std::vector<int>{1} : std::vector<int>{1, 2};
  std::string norm = "batch";
  std::string json;
};

nlohmann::json ToJson(const BenchResult& result, int threads) {
  return {{"threads", threads},
          {"images_per_second", result.images_per_second},
          {"images_per_second_mean", result.images_per_second_mean},
          {"images_per_second_min", result.images_per_second_min},
          {"images_per_second_max", result.images_per_second_max},
          {"forward_seconds", result.forward_seconds},
          {"backward_seconds", result.backward_seconds},
          {"update_seconds", result.update_seconds},
          {"flops_per_image", result.flops_per_image},
          {"gflops_per_second",
           result.flops_per_image * result.images_per_second * 1e-9},
          {"conv_only_seconds", result.conv_only_seconds},
          {"conv_only_images_per_second", result.conv_only_images_per_second}};
}

void Print(const BenchResult& result, int threads) {
  std::printf(
      "%d thread%s  %8.1f images/s (%.1f to %.1f)  forward %.1f ms, backward "
      "%.1f ms, update %.2f ms",
      threads, threads == 1 ? " " : "s", result.images_per_second,
      result.images_per_second_min, result.images_per_second_max,
      1e3 * result.forward_seconds, 1e3 * result.backward_seconds,
      1e3 * result.update_seconds);
  if (result.conv_only_images_per_second > 0) {
    std::printf("  convolutions alone %.1f images/s",
                result.conv_only_images_per_second);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// Whether the figures can be written, before minutes are spent on them.
absl::Status CheckJsonPath(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path target(path);
  std::error_code ignored;  // what cannot be looked at is no folder
  if (!target.has_filename() || fs::is_directory(target, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--json: found the folder ", path, "; allowed: a file"));
  }
  const fs::path folder =
      target.has_parent_path() ? target.parent_path() : fs::path(".");
  // A path with a final slash fails for what is no folder.
  if (access((folder / "").c_str(), W_OK | X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--json ", path, ": cannot write into ", folder.string(),
                     ": ", ErrnoText(errno)));
  }
  return absl::OkStatus();
}

absl::Status BenchModelCommand(const BenchArguments& arguments) {
  if (arguments.norm != "batch" && arguments.norm != "group") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--norm: found ", arguments.norm, "; allowed: batch, group"));
  }
  if (!arguments.json.empty()) {
    RV_RETURN_IF_ERROR(CheckJsonPath(arguments.json));
  }
  BenchOptions options = arguments.options;
  options.model.norm =
      arguments.norm == "group" ? NormKind::kGroup : NormKind::kBatch;
  nlohmann::json runs = nlohmann::json::array();
  int64_t parameters = 0;
  for (const int threads : arguments.threads) {
    options.runtime.threads = threads;
    RV_ASSIGN_OR_RETURN(const BenchResult result, BenchModel(options));
    parameters = result.parameters;
    Print(result, threads);
    runs.push_back(ToJson(result, threads));
  }
  if (arguments.json.empty()) return absl::OkStatus();
  const nlohmann::json out = {
      {"model", options.model.name},
      {"norm", arguments.norm},
      {"batch", options.batch},
      {"image",
       {options.model.channels, options.model.height, options.model.width}},
      {"parameters", parameters},
      {"runs", runs}};
  return WriteFileAtomically(arguments.json, out.dump(2) + "\n");
}

}  // namespace

void AddBenchCommand(CLI::App* app, Command* run) {
  CLI::App* bench =
      app->add_subcommand("bench", "Measure this machine's speed");
  bench->require_subcommand(1);
  CLI::App* command = bench->add_subcommand(
      "model", "Forward, backward and update of a model, on random data");
  auto arguments = std::make_shared<BenchArguments>();
  command->add_option("name", arguments->options.model.name, "Built-in model")
      ->required();
  command->add_option("--batch", arguments->options.batch, "Images of a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--threads", arguments->threads,
                   "Numbers of threads, comma separated")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, NumCores()));
  command
      ->add_option("--repetitions", arguments->options.repetitions,
                   "Repetitions, of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--norm", arguments->norm, "batch or group")
      ->capture_default_str();
  command->add_option("--json", arguments->json, "Write the figures here");
  command->footer(
      "Examples:\n"
      "  rivulet bench model resnet20\n"
      "  rivulet bench model resnet56 --batch 64 --threads 1 --json "
      "bench.json");
  command->callback([arguments, run] {
    *run = [arguments] { return BenchModelCommand(*arguments); };
  });
}

}  // namespace rivulet
