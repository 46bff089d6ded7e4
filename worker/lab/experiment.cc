#include "worker/lab/experiment.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/daemon/config_keys.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_plan.h"
#include "common/daemon/text_file.h"
#include "server/controller/complete_markers.h"
#include "server/controller/summary.h"
#include "worker/lab/in_process_cluster.h"

namespace rivulet {
namespace {

constexpr size_t kMaxRuns = 10000;
constexpr char kLog[] = "lab";  // logs/lab.log of each run

// All combinations of the grid's values, the last key's changing fastest.
std::vector<std::vector<std::string>> Combinations(
    const std::vector<Experiment::GridKey>& grid) {
  std::vector<std::vector<std::string>> all = {{}};
  for (const Experiment::GridKey& key : grid) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& combination : all) {
      for (const std::string& value : key.values) {
        longer.push_back(combination);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// "density=0.01" of compression.density.
std::string ShortSetting(const std::string& key, const std::string& value) {
  return absl::StrCat(key.substr(key.rfind('.') + 1), "=", value);
}

std::string FolderName(const Experiment& experiment, const RunKey& key) {
  std::string name = key.arm;
  for (size_t i = 0; i < key.grid.size(); ++i) {
    absl::StrAppend(&name, "-",
                    ShortSetting(experiment.grid[i].key, key.grid[i]));
  }
  absl::StrAppend(&name, "-seed", key.seed);
  for (char& c : name) {
    if (c != '=' && !IsNameCharacter(c)) c = '_';
  }
  return name;
}

// A command line's overrides must not make arms or combinations alike.
absl::Status CheckOverrides(const Experiment& experiment,
                            absl::Span<const std::string> overrides) {
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find('='));
    std::string by = GivenBy(key);
    for (const Experiment::GridKey& k : experiment.grid) {
      if (k.key == key) by = "grid";
    }
    for (const Experiment::Arm& arm : experiment.arms) {
      for (const Setting& s : arm.settings) {
        if (s.key == key) by = absl::StrCat("arm ", arm.name);
      }
    }
    if (!by.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set ", text, ": ", key, ": is given by ", by, " of ",
                       experiment.file, "; allowed: other keys"));
    }
  }
  return absl::OkStatus();
}

// What the line says of a run's settings: the newest of each key, but for those
// that change no result.
std::string SettingsText(const std::vector<Setting>& settings) {
  std::vector<Setting> kept;
  for (const Setting& setting : settings) {
    const KeySpec* const key = FindKey(setting.key);
    if (key != nullptr && key->scope == KeyScope::kLocal) continue;
    const auto old =
        std::find_if(kept.begin(), kept.end(),
                     [&](const Setting& s) { return s.key == setting.key; });
    if (old != kept.end()) kept.erase(old);
    kept.push_back(setting);
  }
  return absl::StrJoin(kept, "; ", [](std::string* out, const Setting& s) {
    absl::StrAppend(out, s.Text());
  });
}

absl::StatusOr<std::string> ReadSummary(const ExperimentRun& run) {
  absl::StatusOr<std::string> text =
      ReadTextFile(RunPaths(run.run_dir).summary());
  if (absl::IsNotFound(text.status())) return std::string();
  if (!text.ok()) return AsRunFolderError(text.status());
  return text;
}

// What a folder holds is this run only if the configs agree in all that is not
// local. Resuming under another schedule would give what no config gives.
absl::Status CheckIsRun(const ExperimentRun& run) {
  const std::string path = RunPaths(run.run_dir).config();
  const absl::StatusOr<std::string> yaml = ReadTextFile(path);
  if (absl::IsNotFound(yaml.status())) return absl::OkStatus();
  if (!yaml.ok()) return AsRunFolderError(yaml.status());
  RV_ASSIGN_OR_RETURN(const Config there, ParseConfig(*yaml, path, {}));
  const std::string differences = DescribeDifferences(
      path, CanonicalConfig(there, /*for_resume=*/false), "the experiment",
      CanonicalConfig(run.config, /*for_resume=*/false));
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      run.run_dir, ": the run in this folder has another config: ", differences,
      "; remove it, or name another `out`"));
}

class Runner {
 public:
  Runner(const ExperimentOptions& options, ResultsFile* results)
      : options_(options), results_(results) {}

  // Cancelled, or an error of the results' file, ends all.
  absl::Status Run(const ExperimentRun& run) {
    const absl::StatusOr<RunState> state = StateOf(run, *results_);
    if (options_.begins) {
      options_.begins(run, state.ok() ? *state : RunState::kToDo);
    }
    if (state.ok() && *state == RunState::kDone) return absl::OkStatus();
    const absl::StatusOr<std::string> summary =
        state.ok() ? Summary(run, *state) : state.status();
    if (options_.ended) options_.ended(run, summary.status());
    if (absl::IsCancelled(summary.status())) return summary.status();
    if (summary.ok()) return AddLine(run, *summary);
    ++failed_;
    if (first_failure_.ok()) {
      first_failure_ = Annotate(summary.status(), run.name);
    }
    return absl::OkStatus();
  }

  absl::Status Result(size_t runs) const {
    if (failed_ == 0) return absl::OkStatus();
    return Annotate(first_failure_,
                    absl::StrCat(failed_, " of ", runs, " runs failed; ",
                                 failed_ > 1 ? "the first: " : "it was"));
  }

 private:
  // Of the run once it is complete.
  absl::StatusOr<std::string> Summary(const ExperimentRun& run,
                                      RunState state) {
    RV_RETURN_IF_ERROR(CheckIsRun(run));
    if (state == RunState::kFinished) return ReadSummary(run);
    InProcessOptions in_process;
    in_process.run_dir = run.run_dir;
    in_process.resume = true;
    in_process.stop_requested = options_.stop_requested;
    in_process.cores = options_.cores;
    in_process.log = kLog;
    if (options_.progress) {
      in_process.progress = [this, &run](const v1::RunStatus& status) {
        options_.progress(run, status);
      };
    }
    RV_ASSIGN_OR_RETURN(InProcessOutcome outcome,
                        RunInProcess(run.config, in_process));
    return std::move(outcome.summary_json);
  }

  absl::Status AddLine(const ExperimentRun& run, const std::string& summary) {
    absl::StatusOr<std::string> line =
        ResultsLine(run.key, run.settings, summary);
    if (!line.ok()) return Annotate(line.status(), run.run_dir);
    return results_->Append(run.key, run.settings, *line);
  }

  const ExperimentOptions& options_;
  ResultsFile* const results_;
  int failed_ = 0;
  absl::Status first_failure_;
};

}  // namespace

absl::StatusOr<std::vector<ExperimentRun>> LayOut(
    const Experiment& experiment, absl::Span<const std::string> overrides) {
  RV_RETURN_IF_ERROR(CheckOverrides(experiment, overrides));
  const std::vector<std::vector<std::string>> combinations =
      Combinations(experiment.grid);
  const size_t count =
      experiment.seeds.size() * combinations.size() * experiment.arms.size();
  if (count > kMaxRuns) {
    return absl::InvalidArgumentError(
        absl::StrCat(experiment.file, ": found ", count,
                     " runs; allowed: at most ", kMaxRuns));
  }
  std::vector<ExperimentRun> runs;
  std::map<std::string, std::string> folders;  // folder -> run
  for (const int64_t seed : experiment.seeds) {
    for (const std::vector<std::string>& combination : combinations) {
      for (const Experiment::Arm& arm : experiment.arms) {
        ExperimentRun run;
        run.key = {arm.name, combination, seed};
        run.name = arm.name;
        std::vector<Setting> settings = experiment.set;
        settings.insert(settings.end(), arm.settings.begin(),
                        arm.settings.end());
        for (size_t i = 0; i < combination.size(); ++i) {
          const std::string& key = experiment.grid[i].key;
          settings.push_back({key, combination[i]});
          absl::StrAppend(&run.name, " ", ShortSetting(key, combination[i]));
        }
        absl::StrAppend(&run.name, " seed ", seed);
        for (const std::string& text : overrides) {
          const size_t equals = text.find('=');
          settings.push_back(
              {text.substr(0, equals),
               equals == text.npos ? std::string() : text.substr(equals + 1)});
        }
        run.settings = SettingsText(settings);
        run.run_dir =
            absl::StrCat(experiment.out, "/", FolderName(experiment, run.key));
        const auto [other, is_new] = folders.emplace(run.run_dir, run.name);
        if (!is_new) {
          return absl::InvalidArgumentError(absl::StrCat(
              experiment.file, ": ", run.name, " and ", other->second,
              " would share the folder ", run.run_dir,
              "; allowed: values that differ in "
              "letters and digits"));
        }
        std::vector<std::string> texts;
        texts.reserve(settings.size() + 2);
        for (const Setting& setting : settings) texts.push_back(setting.Text());
        texts.push_back(absl::StrCat("train.seed=", seed));
        texts.push_back(absl::StrCat("local.run_dir=", run.run_dir));
        const absl::StatusOr<Config> config =
            LoadConfig(experiment.base, texts);
        if (!config.ok()) return Annotate(config.status(), run.name);
        run.config = *config;
        const auto plan = RunPlan::Create(run.config);
        if (!plan.ok()) return Annotate(plan.status(), run.name);
        runs.push_back(std::move(run));
      }
    }
  }
  return runs;
}

absl::StatusOr<RunState> StateOf(const ExperimentRun& run,
                                 const ResultsFile& results) {
  if (const std::string* const settings = results.FindSettings(run.key)) {
    if (*settings == run.settings) return RunState::kDone;
    return absl::InvalidArgumentError(absl::StrCat(
        run.name, ": its line in the CSV was made with the settings ",
        settings->empty() ? "of the base alone" : *settings, ", and now has ",
        run.settings.empty() ? "none" : run.settings,
        ": give the arm another name, or write into another `csv` and `out`"));
  }
  RV_ASSIGN_OR_RETURN(const std::string summary, ReadSummary(run));
  if (StatusOfSummary(summary) == "complete") return RunState::kFinished;
  RV_ASSIGN_OR_RETURN(const bool has_checkpoint,
                      HasCompleteCheckpoint(RunPaths(run.run_dir)));
  return has_checkpoint ? RunState::kResumable : RunState::kToDo;
}

absl::Status RunExperiment(const Experiment& experiment,
                           absl::Span<const ExperimentRun> runs,
                           const ExperimentOptions& options) {
  RV_ASSIGN_OR_RETURN(ResultsFile results,
                      ResultsFile::Open(experiment.csv, experiment.GridKeys()));
  // What is wrong with the file is said before hours of training; what is wrong
  // with a run's folder is that run's.
  for (const ExperimentRun& run : runs) {
    absl::Status status = StateOf(run, results).status();
    if (absl::IsInvalidArgument(status)) return status;
  }
  RV_ASSIGN_OR_RETURN(const RunFolder folder,
                      RunFolder::Create(experiment.out, /*resume=*/true));
  Runner runner(options, &results);
  for (const ExperimentRun& run : runs) {
    if (options.stop_requested && options.stop_requested()) {
      return absl::CancelledError(absl::StrCat("stopped before ", run.name,
                                               "; the same again goes on"));
    }
    RV_RETURN_IF_ERROR(runner.Run(run));
  }
  return runner.Result(runs.size());
}

}  // namespace rivulet
