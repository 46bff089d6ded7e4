// rivulet lab: runs in this process, one or a whole experiment of them.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/daemon/child_process.h"
#include "common/daemon/config.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/text_file.h"
#include "worker/cli/commands.h"
#include "worker/cli/progress.h"
#include "worker/lab/experiment.h"
#include "worker/lab/in_process_cluster.h"

namespace rivulet {
namespace {

struct LabArguments {
  std::string config;
  std::string run_dir;
  std::string data;
  std::vector<std::string> overrides;
  int cores = 0;
  bool list = false;
  bool resume = false;

  std::vector<std::string> AllOverrides() const {
    std::vector<std::string> all = overrides;
    if (!data.empty()) all.push_back(absl::StrCat("data.path=", data));
    return all;
  }
};

constexpr absl::Duration kPlainInterval = absl::Seconds(10);

ProgressPrinter Printer(bool resume, const std::string& prefix) {
  return ProgressPrinter(stdout, isatty(STDOUT_FILENO) != 0, kPlainInterval,
                         resume, prefix);
}

std::string StateName(RunState state) {
  switch (state) {
    case RunState::kDone:
      return "done";
    case RunState::kFinished:
      return "finished";
    case RunState::kResumable:
      return "resumable";
    case RunState::kToDo:
      return "to do";
  }
  return "unknown";
}

std::string ResumeCommandOf(const LabArguments& arguments,
                            const std::string& called_as) {
  return ResumeCommand(called_as, "lab", arguments.config, arguments.run_dir,
                       arguments.AllOverrides());
}

// Says once that an interrupt was heard: a step may take a while.
class StopSayer {
 public:
  void Look(ProgressPrinter& printer) {
    if (said_ || !StopSignalled()) return;
    said_ = true;
    printer.Say("stopping after a checkpoint; interrupt again to stop at once");
  }

 private:
  bool said_ = false;
};

absl::Status RunOne(const LabArguments& arguments,
                    const std::string& called_as) {
  if (arguments.list) {
    return absl::InvalidArgumentError(
        absl::StrCat("--list: ", arguments.config,
                     " is the config of one run; allowed: a file with arms"));
  }
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(arguments.config, arguments.AllOverrides()));
  InProcessOptions options;
  options.run_dir =
      arguments.run_dir.empty() ? config.local.run_dir : arguments.run_dir;
  options.resume = arguments.resume;
  options.stop_requested = StopSignalled;
  options.cores = arguments.cores;
  options.log = "lab";
  const std::string earlier_summary =
      ReadTextFile(RunPaths(options.run_dir).summary()).value_or("");
  ProgressPrinter printer = Printer(arguments.resume, "");
  StopSayer stop;
  options.progress = [&](const v1::RunStatus& status) {
    stop.Look(printer);
    printer.Show(status, absl::Now());
  };
  absl::PrintF(
      "training %s on %s in this process; %d workers, %d shards; files in %s\n",
      config.model.name, config.data.name, config.cluster.workers,
      config.cluster.shards, options.run_dir);
  std::fflush(stdout);
  absl::Status result = RunInProcess(config, options).status();
  printer.Finish();
  if (!result.ok() && !absl::IsCancelled(result)) return result;
  return PrintClosing(result, options.run_dir, earlier_summary,
                      ResumeCommandOf(arguments, called_as));
}

absl::Status List(const Experiment& experiment,
                  const std::vector<ExperimentRun>& runs) {
  RV_ASSIGN_OR_RETURN(const ResultsFile results,
                      ResultsFile::Open(experiment.csv, experiment.GridKeys()));
  for (const ExperimentRun& run : runs) {
    RV_ASSIGN_OR_RETURN(const RunState state, StateOf(run, results));
    absl::PrintF("%-9s  %s  (%s)\n", StateName(state), run.name, run.run_dir);
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

// What is shown of an experiment while it runs.
class ExperimentView {
 public:
  explicit ExperimentView(size_t runs) : runs_(runs) {}

  void Begin(const ExperimentRun& run, RunState state) {
    ++index_;
    last_ = v1::RunStatus();
    prefix_ = absl::StrFormat("[%d/%d] %s  ", index_, runs_, run.name);
    printer_.emplace(Printer(state == RunState::kResumable, prefix_));
    if (state == RunState::kDone) printer_->Say("done already");
  }
  void Show(const v1::RunStatus& status) {
    last_ = status;
    stop_.Look(*printer_);
    printer_->Show(status, absl::Now());
  }
  void End(const ExperimentRun& run, const absl::Status& status) {
    printer_->Finish();
    if (status.ok()) {
      // A run that was complete before has shown nothing here.
      const bool trained = last_.phase() == v1::RunStatus::COMPLETE;
      printer_->Say(absl::StrCat(
          "done",
          trained ? absl::StrFormat(": test %.2f %%, %.4g times less traffic",
                                    100 * last_.test_accuracy(), last_.ratio())
                  : "",
          "; files in ", run.run_dir));
    } else if (absl::IsCancelled(status)) {
      printer_->Say(absl::StrCat("stopped at step ", last_.step()));
    } else {
      printer_->Say(absl::StrCat("failed: ", std::string(status.message())));
    }
  }

 private:
  const size_t runs_;
  int index_ = 0;
  std::string prefix_;
  std::optional<ProgressPrinter> printer_;  // of the run under way
  StopSayer stop_;
  v1::RunStatus last_;
};

absl::Status RunGrid(const LabArguments& arguments) {
  if (arguments.resume || !arguments.run_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        arguments.resume ? "--resume" : "--run-dir", ": ", arguments.config,
        " has arms, which always go on, in folders below its `out`; allowed: "
        "neither"));
  }
  RV_ASSIGN_OR_RETURN(const Experiment experiment,
                      LoadExperiment(arguments.config));
  RV_ASSIGN_OR_RETURN(const std::vector<ExperimentRun> runs,
                      LayOut(experiment, arguments.AllOverrides()));
  if (arguments.list) return List(experiment, runs);
  absl::PrintF("%d runs; folders in %s, results in %s\n", runs.size(),
               experiment.out, experiment.csv);
  std::fflush(stdout);
  ExperimentView view(runs.size());
  ExperimentOptions options;
  options.cores = arguments.cores;
  options.stop_requested = StopSignalled;
  options.begins = [&](const ExperimentRun& run, RunState state) {
    view.Begin(run, state);
  };
  options.progress = [&](const ExperimentRun&, const v1::RunStatus& status) {
    view.Show(status);
  };
  options.ended = [&](const ExperimentRun& run, const absl::Status& status) {
    view.End(run, status);
  };
  absl::Status result = RunExperiment(experiment, runs, options);
  if (!absl::IsCancelled(result)) return result;
  return absl::CancelledError(
      absl::StrCat(result.message(), "; the same command goes on"));
}

absl::Status Lab(const LabArguments& arguments, const std::string& called_as) {
  HandleStopSignals();
  // Until a run has a folder for it; what ends the command is said anyway.
  RV_RETURN_IF_ERROR(InitLogging({.process = "lab", .level = "error"}));
  RV_ASSIGN_OR_RETURN(const bool is_experiment, IsExperiment(arguments.config));
  return is_experiment ? RunGrid(arguments) : RunOne(arguments, called_as);
}

}  // namespace

void AddLabCommand(CLI::App* app, const std::string& called_as, Command* run) {
  CLI::App* command = app->add_subcommand(
      "lab", "Train in this process: one run, or a grid of settings and seeds");
  auto arguments = std::make_shared<LabArguments>();
  command
      ->add_option("config", arguments->config,
                   "YAML: the config of a run, or an experiment with arms")
      ->required();
  command->add_option("--run-dir", arguments->run_dir,
                      "Folder of one run (default: local.run_dir of the "
                      "config, or runs/<its name>)");
  command
      ->add_option("--set", arguments->overrides,
                   "key.path=value: overrides one key of the config, in all "
                   "runs; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--data", arguments->data,
                      "Folder of the data set: the same as --set data.path=");
  command
      ->add_option("--cores", arguments->cores,
                   "How many workers compute at once (default: as many as "
                   "there are cores)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--list", arguments->list,
                    "Say of each run of an experiment whether it is done, "
                    "resumable or to do");
  command->add_flag("--resume", arguments->resume,
                    "Go on with one run; an experiment's go on by themselves");
  command->footer(
      "The daemons' own code in threads, without sockets: the same weights, "
      "bit for bit, as rivulet train with local.threads: 1.\n"
      "An experiment is a YAML file:\n"
      "  base: ../cifar10_resnet20.yaml     # relative to this file\n"
      "  out: runs/lab/momentum             # the runs' folders\n"
      "  csv: docs/results/momentum.csv     # a line per finished run\n"
      "  seeds: [1, 2]\n"
      "  set: {train.epochs: 10}            # optional, for all runs\n"
      "  arms:\n"
      "    dgc: {compression.compensation: 0}\n"
      "    c1: {compression.compensation: 1, optimizer.learning_rate: 0.05}\n"
      "  grid:                              # optional: every combination\n"
      "    compression.density: [0.01, 0.001]\n"
      "Runs that have their line are skipped, interrupted ones go on, and one "
      "that fails does not keep the next from beginning.\n"
      "Ctrl-C once: checkpoint and stop (exit code 130); twice: stop at "
      "once.\n\n"
      "Examples:\n"
      "  rivulet lab configs/lab/momentum_rates.yaml --list\n"
      "  rivulet lab configs/lab/momentum_rates.yaml --data DIR\n"
      "  rivulet lab configs/quickstart.yaml --run-dir /tmp/q --set "
      "train.epochs=1\n"
      "  rivulet lab configs/quickstart.yaml --run-dir /tmp/q --set "
      "train.epochs=1 --resume");
  command->callback([arguments, called_as, run] {
    *run = [arguments, called_as] { return Lab(*arguments, called_as); };
  });
}

}  // namespace rivulet
