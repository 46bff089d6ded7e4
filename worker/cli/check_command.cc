// rivulet check: is this config right, and what would it do?

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/daemon/config.h"
#include "common/daemon/config_values.h"
#include "common/daemon/run_plan.h"
#include "worker/cli/commands.h"
#include "worker/cli/progress.h"

namespace rivulet {
namespace {

struct CheckArguments {
  std::string config;
  std::vector<std::string> overrides;
  bool keys = false;
};

// Arrays of one fp32 number a parameter: weights and gradients; the residual,
// and with momentum that and the residual of the step under way; w, v̂ and the
// sum of the pushes, beside a momentum of its own.
constexpr double kWorkerArrays = 2;
constexpr double kResidualArrays = 1;
constexpr double kMomentumArrays = 2;
constexpr double kShardArrays = 3;

std::string Checkpoints(const CheckpointConfig& config) {
  const bool timed = config.every > absl::ZeroDuration();
  std::vector<std::string> when;
  if (timed) {
    when.push_back(absl::StrCat("every ", FormatDurationValue(config.every)));
  }
  if (config.every_steps > 0) {
    when.push_back(absl::StrCat("every ", config.every_steps, " steps"));
  }
  if (when.empty()) return "only when the run is told to stop";
  return absl::StrCat(absl::StrJoin(when, " and "), ", the newest ",
                      config.keep, " kept");
}

void PrintPlan(const RunPlan& plan) {
  const Config& config = plan.config();
  const int64_t parameters = plan.manifest().num_parameters();
  std::printf("model        %s, %lld parameters in %d tensors\n",
              config.model.name.c_str(), static_cast<long long>(parameters),
              static_cast<int>(plan.manifest().parameters.size()));
  std::printf(
      "steps        %lld (%lld an epoch), global batch %lld, %lld workers\n",
      static_cast<long long>(plan.total_steps()),
      static_cast<long long>(plan.steps_per_epoch()),
      static_cast<long long>(config.train.batch_size),
      static_cast<long long>(config.cluster.workers));
  std::printf("shards      ");
  for (int shard = 0; shard < plan.partition().num_shards(); ++shard) {
    std::printf(
        " %s",
        HumanBytes(4.0 * plan.partition().elements_of_shard(shard)).c_str());
  }
  std::printf("\n");
  double worker_arrays = kWorkerArrays;
  if (!plan.momentum_on_shard()) {
    worker_arrays += kResidualArrays;
    if (!config.compression.folds_momentum() && config.optimizer.momentum > 0) {
      worker_arrays += kMomentumArrays;
    }
  }
  int64_t most = 0;
  for (int shard = 0; shard < plan.partition().num_shards(); ++shard) {
    most = std::max(most, plan.partition().elements_of_shard(shard));
  }
  std::printf(
      "memory       at least %s a worker and %s a shard, without activations "
      "and messages\n",
      HumanBytes(4.0 * parameters * worker_arrays).c_str(),
      HumanBytes(4.0 * most *
                 (kShardArrays + (plan.shard_optimizer().momentum > 0 ? 1 : 0)))
          .c_str());
  std::printf("checkpoints  %s\n", Checkpoints(config.checkpoint).c_str());
  std::printf("dense        %s a step, worker and direction\n",
              HumanBytes(4.0 * parameters).c_str());
  std::printf("compression  %s", config.compression.policy.c_str());
  if (config.compression.is_sparse()) {
    const int64_t steady = std::min(plan.steady_from(), plan.total_steps() - 1);
    std::printf("; from step %lld density %g up, %g down",
                static_cast<long long>(steady), plan.Up(0, steady).density,
                // The last answer carries the weights themselves.
                plan.Down(0, std::max<int64_t>(
                                 std::min(steady, plan.total_steps() - 2), 0))
                    .density);
  }
  std::printf("\n");
}

absl::Status Check(const CheckArguments& arguments) {
  if (arguments.keys) {
    std::fputs(ConfigReference().c_str(), stdout);
    return absl::OkStatus();
  }
  if (arguments.config.empty()) {
    return absl::InvalidArgumentError("name a config, or ask for --keys");
  }
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(arguments.config, arguments.overrides));
  auto made = RunPlan::Create(config);
  if (!made.ok()) return Annotate(made.status(), arguments.config);
  const std::shared_ptr<const RunPlan> plan = *std::move(made);
  PrintPlan(*plan);
  std::printf("%s is a valid config\n", arguments.config.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddCheckCommand(CLI::App* app, Command* run) {
  CLI::App* command =
      app->add_subcommand("check", "Check a config and say what it would do");
  auto arguments = std::make_shared<CheckArguments>();
  command->add_option("config", arguments->config, "YAML config");
  command
      ->add_option("--set", arguments->overrides,
                   "key.path=value: overrides one key of the config")
      ->allow_extra_args(false);
  command->add_flag("--keys", arguments->keys,
                    "Print the reference of all keys instead");
  command->footer(
      "Examples:\n"
      "  rivulet check configs/quickstart.yaml\n"
      "  rivulet check configs/quickstart.yaml --set compression.density=0.01\n"
      "  rivulet check --keys");
  command->callback(
      [arguments, run] { *run = [arguments] { return Check(*arguments); }; });
}

}  // namespace rivulet
