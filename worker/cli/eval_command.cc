// rivulet eval: the test accuracy of trained weights.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/daemon/config.h"
#include "common/daemon/run_plan.h"
#include "data/dataset.h"
#include "models/checkpoint/tensor_file.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "worker/cli/commands.h"
#include "worker/evaluator.h"

namespace rivulet {
namespace {

struct EvalArguments {
  std::string target;
  std::string config;
  std::vector<std::string> overrides;
  int threads = 0;
  bool json = false;
};

// Copies `from` into the model; every tensor must be there with its shape.
absl::Status LoadTensor(const TensorFile& file, const TensorSpec& spec,
                        absl::Span<float> to) {
  const NamedTensor* tensor = file.Find(spec.name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat("no tensor named ", spec.name));
  }
  if (tensor->shape != spec.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", spec.name, " has shape [",
        absl::StrJoin(tensor->shape, ", "), "]; the config's model needs [",
        absl::StrJoin(spec.shape, ", "), "]"));
  }
  std::copy(tensor->values.begin(), tensor->values.end(), to.begin());
  return absl::OkStatus();
}

absl::Status LoadWeights(const std::string& path, Model& model) {
  RV_ASSIGN_OR_RETURN(const TensorFile file, ReadTensorFile(path));
  const Manifest& manifest = model.manifest();
  for (size_t i = 0; i < manifest.parameters.size(); ++i) {
    RV_RETURN_IF_ERROR(Annotate(
        LoadTensor(file, manifest.parameters[i], model.parameter(i)), path));
  }
  for (size_t i = 0; i < manifest.buffers.size(); ++i) {
    RV_RETURN_IF_ERROR(
        Annotate(LoadTensor(file, manifest.buffers[i], model.buffer(i)), path));
  }
  model.ParametersChanged();
  return absl::OkStatus();
}

absl::Status Eval(const EvalArguments& arguments) {
  std::error_code error;  // what cannot be looked at is not there
  const bool is_run = std::filesystem::is_directory(arguments.target, error);
  const std::filesystem::path weights =
      is_run ? std::filesystem::path(arguments.target) / "weights.safetensors"
             : std::filesystem::path(arguments.target);
  const std::string config_path =
      arguments.config.empty()
          ? (weights.parent_path() / "config.yaml").string()
          : arguments.config;
  if (!std::filesystem::exists(weights, error)) {
    return absl::NotFoundError(absl::StrCat(
        weights.string(),
        is_run ? " is not there: has this run finished?" : " is not there"));
  }
  if (arguments.config.empty() &&
      !std::filesystem::exists(config_path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", arguments.target, " without ", config_path,
        " beside it; allowed: a run folder, or weights with --config"));
  }
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(config_path, arguments.overrides));
  RV_ASSIGN_OR_RETURN(const std::shared_ptr<const RunPlan> plan,
                      RunPlan::Create(config));
  const int threads = arguments.threads > 0 ? arguments.threads : NumCores();
  RV_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                      CreateModel(plan->model_options(), {.threads = threads}));
  RV_RETURN_IF_ERROR(LoadWeights(weights.string(), *model));
  RV_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> test,
                      OpenDataset(plan->dataset_options(), Split::kTest));
  RV_ASSIGN_OR_RETURN(const LossResult result,
                      EvaluateDataset(*model, *test, 0, test->size(), 256));

  const double samples = static_cast<double>(result.samples);
  const double accuracy = static_cast<double>(result.correct) / samples;
  const double loss = result.loss_sum / samples;
  if (arguments.json) {
    const nlohmann::json out = {{"weights", weights.string()},
                                {"samples", result.samples},
                                {"test_accuracy", accuracy},
                                {"test_loss", loss}};
    std::printf("%s\n", out.dump(2).c_str());
  } else {
    absl::PrintF("%s: test accuracy %.2f %%, loss %.4f (%d samples of %s)\n",
                 weights.string(), 100 * accuracy, loss, result.samples,
                 config.data.name);
  }
  return absl::OkStatus();
}

}  // namespace

void AddEvalCommand(CLI::App* app, Command* run) {
  CLI::App* command =
      app->add_subcommand("eval", "Evaluate trained weights on the test set");
  auto arguments = std::make_shared<EvalArguments>();
  command
      ->add_option("run_or_weights", arguments->target,
                   "Run folder, or a .safetensors file")
      ->required();
  command->add_option("--config", arguments->config,
                      "Config of the model and data (default: config.yaml "
                      "beside the weights)");
  command
      ->add_option("--set", arguments->overrides,
                   "key.path=value: overrides one key of the config")
      ->allow_extra_args(false);
  command
      ->add_option("--threads", arguments->threads,
                   "Threads (default, and 0: all cores)")
      ->check(CLI::Range(0, NumCores()));
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  rivulet eval runs/quickstart\n"
      "  rivulet eval model.safetensors --config configs/quickstart.yaml");
  command->callback(
      [arguments, run] { *run = [arguments] { return Eval(*arguments); }; });
}

}  // namespace rivulet
