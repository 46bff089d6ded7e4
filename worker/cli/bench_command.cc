// rivulet bench: how fast this machine is.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "models/bench_model.h"
#include "models/manifest/manifest.h"
#include "nlohmann/json.hpp"
#include "worker/cli/commands.h"
#include "worker/cli/json_output.h"

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

absl::Status BenchModelCommand(const BenchArguments& arguments) {
  if (arguments.norm != "batch" && arguments.norm != "group") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--norm: found ", arguments.norm, "; allowed: batch, group"));
  }
  RV_RETURN_IF_ERROR(CheckJsonPath(arguments.json));
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
  return WriteJson(
      arguments.json,
      {{"model", options.model.name},
       {"norm", arguments.norm},
       {"batch", options.batch},
       {"image",
        {options.model.channels, options.model.height, options.model.width}},
       {"parameters", parameters},
       {"runs", runs}});
}

}  // namespace

void AddBenchCommand(CLI::App* app, Command* run) {
  CLI::App* bench =
      app->add_subcommand("bench", "Measure this machine's speed");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  rivulet bench model resnet20\n"
      "  rivulet bench compression --json /tmp/compression.json");
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
  AddBenchCompressionCommand(bench, run);
}

}  // namespace rivulet
