// rivulet bench compression: how fast and how small gradients get here.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "compression/bench/bench_compression.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "worker/cli/commands.h"
#include "worker/cli/json_output.h"
#include "worker/cli/progress.h"

namespace rivulet {
namespace {

struct BenchCompressionArguments {
  CompressionBenchOptions options;
  std::string gradients = "model";
  std::string json;
};

// Gradients of a ResNet-20 some steps into its training on synthetic images,
// each layer's scaled to the same size.
absl::StatusOr<std::vector<float>> RecordGradients() {
  constexpr int64_t kBatch = 32;
  constexpr int kSteps = 40;
  constexpr int kRecorded = 10;
  DatasetOptions data;
  data.name = "synthetic";
  RV_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset,
                      OpenDataset(data, Split::kTrain));
  RV_ASSIGN_OR_RETURN(const DatasetInfo info, DescribeDataset(data));
  ModelOptions options;
  options.name = "resnet20";
  options.num_classes = info.num_classes;
  options.channels = info.shape.channels;
  options.height = info.shape.height;
  options.width = info.shape.width;
  RV_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                      CreateModel(options, {.threads = 1}));
  InitializeModel(*model, /*seed=*/1);
  LoaderOptions loading;
  loading.batch_size = kBatch;
  const BatchLoader loader(dataset, loading);
  std::vector<float> samples;
  for (int step = 0; step < kSteps; ++step) {
    RV_ASSIGN_OR_RETURN(const Batch batch, loader.Make(step, 1, 0));
    model->Forward(batch.images, batch.labels);
    model->Backward([&](int i) {
      const absl::Span<const float> g = model->gradient(i);
      if (step >= kSteps - kRecorded &&
          !model->manifest().parameters[static_cast<size_t>(i)].is_small()) {
        double energy = 0;
        for (const float x : g) energy += static_cast<double>(x) * x;
        const double rms = std::sqrt(energy / static_cast<double>(g.size()));
        if (rms > 0) {
          for (const float x : g) {
            samples.push_back(static_cast<float>(x / rms));
          }
        }
      }
      const absl::Span<float> w = model->parameter(i);
      for (size_t k = 0; k < w.size(); ++k) w[k] -= 0.05f * g[k];
    });
    model->ParametersChanged();
  }
  return samples;
}

void PrintTimes(const CompressionTimes& t, const CompressionBenchResult& r,
                int threads) {
  const double gigabytes = 4e-9 * static_cast<double>(r.elements);
  std::printf(
      "%d thread%s  bound %.2f ms, pass %.2f ms = %.2f of it (%.1f GB/s of "
      "gradient), with frames %.2f; with momentum: bound %.2f ms, pass %.2f "
      "ms = %.2f of it\n",
      threads, threads == 1 ? " " : "s", 1e3 * t.feedback_bound,
      1e3 * t.feedback_pass, t.feedback_share(), gigabytes / t.feedback_pass,
      t.whole_share(), 1e3 * t.momentum_bound, 1e3 * t.momentum_pass,
      t.momentum_share());
  std::printf(
      "           the pass is %.2f times as fast as the bound with "
      "momentum\n",
      t.momentum_bound / t.feedback_pass);
}

void Print(const CompressionBenchResult& r, int threads) {
  std::printf("%s, %lld elements; memory is copied at %.1f GB/s\n",
              r.target.c_str(), static_cast<long long>(r.elements),
              r.copy_gb_per_s);
  PrintTimes(r.one_thread, r, 1);
  if (threads > 1) PrintTimes(r.more_threads, r, threads);
  std::printf("in the cache %.1f GB/s of gradient\n", r.in_cache_gb_per_s);
  std::printf("ResNet-50    push %s, pull %s\n",
              HumanBytes(static_cast<double>(r.resnet50_push_bytes)).c_str(),
              HumanBytes(static_cast<double>(r.resnet50_pull_bytes)).c_str());
  std::printf("PTB LSTM     push %s\n",
              HumanBytes(static_cast<double>(r.ptb_lstm_push_bytes)).c_str());
  for (const SizeFigure& s : r.sizes) {
    std::printf("%s: %s\n", s.name.c_str(),
                HumanBytes(static_cast<double>(s.bytes)).c_str());
  }
  for (const PositionBits& p : r.position_bits) {
    std::printf("positions    %.2f %%: %.3f bits, %.2f %% above the floor\n",
                100 * p.density, p.bits, 100 * (p.bits / p.floor - 1));
  }
  std::printf(
      "Rice         %.0f M positions/s coded, %.0f M decoded\n"
      "shard        %.1f M entries/s decoded and added, as fast as %.1f GB/s "
      "of dense gradient\n",
      r.encode_mpos_per_s, r.decode_mpos_per_s, r.decode_add_mentries_per_s,
      r.decode_add_gb_per_s);
}

void AddTimes(const CompressionTimes& t, const std::string& suffix,
              nlohmann::json* json) {
  (*json)["bound_seconds" + suffix] = t.feedback_bound;
  (*json)["pass_seconds" + suffix] = t.feedback_pass;
  (*json)["frames_seconds" + suffix] = t.frames;
  (*json)["pass_share_of_bound" + suffix] = t.feedback_share();
  (*json)["whole_share_of_bound" + suffix] = t.whole_share();
  (*json)["momentum_bound_seconds" + suffix] = t.momentum_bound;
  (*json)["momentum_pass_seconds" + suffix] = t.momentum_pass;
  (*json)["momentum_pass_share_of_bound" + suffix] = t.momentum_share();
  (*json)["pass_over_momentum_bound" + suffix] =
      t.momentum_bound / t.feedback_pass;
}

nlohmann::json ToJson(const CompressionBenchResult& r, int threads) {
  nlohmann::json json = {
      {"target", r.target},
      {"elements", r.elements},
      {"copy_gb_per_s", r.copy_gb_per_s},
      {"in_cache_gb_per_s", r.in_cache_gb_per_s},
      {"resnet50_push_bytes", r.resnet50_push_bytes},
      {"resnet50_pull_bytes", r.resnet50_pull_bytes},
      {"ptb_lstm_push_bytes", r.ptb_lstm_push_bytes},
      {"encode_mpos_per_s", r.encode_mpos_per_s},
      {"decode_mpos_per_s", r.decode_mpos_per_s},
      {"decode_add_gb_per_s", r.decode_add_gb_per_s},
      {"decode_add_mentries_per_s", r.decode_add_mentries_per_s}};
  AddTimes(r.one_thread, "", &json);
  if (threads > 1) AddTimes(r.more_threads, "_2t", &json);
  for (const SizeFigure& s : r.sizes) json["sizes"][s.name] = s.bytes;
  for (const PositionBits& p : r.position_bits) {
    json["position_bits"].push_back(
        {{"density", p.density}, {"bits", p.bits}, {"floor", p.floor}});
  }
  return json;
}

absl::Status BenchCompressionCommand(
    const BenchCompressionArguments& arguments) {
  RV_RETURN_IF_ERROR(CheckJsonPath(arguments.json));
  CompressionBenchOptions options = arguments.options;
  options.threads = std::min(2, NumCores());
  std::vector<float> samples;
  if (arguments.gradients == "model") {
    RV_ASSIGN_OR_RETURN(samples, RecordGradients());
    options.samples = samples;
  }
  RV_ASSIGN_OR_RETURN(const CompressionBenchResult result,
                      BenchCompression(options));
  Print(result, options.threads);
  return WriteJson(arguments.json, ToJson(result, options.threads));
}

}  // namespace

void AddBenchCompressionCommand(CLI::App* bench, Command* run) {
  CLI::App* command = bench->add_subcommand(
      "compression",
      "The compression of a ResNet-50's gradient against the bound that memory "
      "sets");
  auto arguments = std::make_shared<BenchCompressionArguments>();
  command
      ->add_option("--density", arguments->options.density,
                   "Share of the entries that is sent")
      ->capture_default_str();
  command
      ->add_option("--bits", arguments->options.value_bits,
                   "Bits of a value, sign included")
      ->capture_default_str()
      ->check(CLI::IsMember({1, 2, 3, 4, 8, 16, 32}));
  command
      ->add_option("--repetitions", arguments->options.repetitions,
                   "Repetitions, of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--gradients", arguments->gradients,
                   "model: recorded from a ResNet-20; synthetic: heavy-tailed")
      ->capture_default_str()
      ->check(CLI::IsMember({"model", "synthetic"}));
  command->add_option("--json", arguments->json, "Write the figures here");
  command->footer(
      "Examples:\n"
      "  rivulet bench compression\n"
      "  rivulet bench compression --bits 1 --json /tmp/compression.json");
  command->callback([arguments, run] {
    *run = [arguments] { return BenchCompressionCommand(*arguments); };
  });
}

}  // namespace rivulet
