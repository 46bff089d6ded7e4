// Experiments: a grid of settings and seeds from one YAML file, each of whose
// runs is a run in this process (in_process_cluster.h) and, once finished, a
// line of a CSV (results_file.h).
//
//   base: ../cifar10_resnet20.yaml     # config that all start from
//   out: runs/lab/momentum             # where the runs' folders go
//   csv: docs/results/momentum.csv     # a line per finished run, appended
//   seeds: [1, 2]
//   set: {train.epochs: 10}            # for all
//   arms:                              # what is compared, in this order
//     dgc: {compression.compensation: 0}
//     c1: {compression.compensation: 1, optimizer.learning_rate: 0.05}
//   grid:                              # each arm with each combination
//     compression.density: [0.01, 0.001]
//
// Paths are relative to the working directory, but for base, which is relative
// to the file. Settings are keys of the config with their whole path. An arm's
// setting is stronger than `set`, the grid's and a command line's are stronger
// than both; where the order would hide a mistake (an arm or a command line
// that sets what the grid sets, for example), it is refused.
//
// Runs are ordered by seed, then by combination, then by arm, so that the first
// results can be compared. Reading is as strict as for configs: errors name
// file, line, key, what was found and what is allowed.

#ifndef RIVULET_WORKER_LAB_EXPERIMENT_H_
#define RIVULET_WORKER_LAB_EXPERIMENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/daemon/config.h"
#include "proto/controller.pb.h"
#include "worker/lab/results_file.h"

namespace rivulet {

// A key of the config and its value, as a config prints it.
struct Setting {
  std::string key;
  std::string value;
};

// An experiment file, checked but for what only its base config can tell.
// Immutable once loaded.
struct Experiment {
  struct Arm {
    std::string name;
    std::vector<Setting> settings;
  };
  struct GridKey {
    std::string key;
    std::vector<std::string> values;
  };

  std::string file;
  std::string base;  // path from the working directory
  std::string out;
  std::string csv;
  std::vector<int64_t> seeds;
  std::vector<Setting> set;
  std::vector<Arm> arms;
  std::vector<GridKey> grid;

  std::vector<std::string> GridKeys() const;
};

// Whether the YAML file at `path` is an experiment (it has `arms`) rather than
// the config of one run. InvalidArgument when it cannot be read as YAML.
absl::StatusOr<bool> IsExperiment(const std::string& path);

// InvalidArgument names file, line, key, what was found and what is allowed.
absl::StatusOr<Experiment> LoadExperiment(const std::string& path);
// The same from a text; `file` is used in messages and for base.
absl::StatusOr<Experiment> ParseExperiment(absl::string_view yaml,
                                           const std::string& file);

// One run of an experiment.
struct ExperimentRun {
  RunKey key;        // its name in the CSV
  std::string name;  // in messages: "dgc density=0.01 seed 1"
  std::string run_dir;
  std::string settings;  // "train.epochs=10; compression.density=0.01"
  Config config;
};

// All runs in order; `overrides` ("key.path=value") are a command line's, for
// all of them. InvalidArgument names the run whose config cannot be.
absl::StatusOr<std::vector<ExperimentRun>> LayOut(
    const Experiment& experiment, absl::Span<const std::string> overrides);

enum class RunState {
  kDone,       // its line is in the CSV
  kFinished,   // complete, and its line is missing
  kResumable,  // goes on from a checkpoint
  kToDo,
};
// Reads the run's folder. InvalidArgument when the CSV has its line with other
// settings.
absl::StatusOr<RunState> StateOf(const ExperimentRun& run,
                                 const ResultsFile& results);

struct ExperimentOptions {
  int cores = 0;  // see InProcessOptions
  // Once true, the run under way checkpoints and stops, and no other begins.
  // May be null.
  std::function<bool()> stop_requested = nullptr;
  // Before and while a run trains, and when it has ended, from the caller's
  // thread. May be null.
  std::function<void(const ExperimentRun&, RunState)> begins = nullptr;
  std::function<void(const ExperimentRun&, const v1::RunStatus&)> progress =
      nullptr;
  std::function<void(const ExperimentRun&, const absl::Status&)> ended =
      nullptr;
};

// Trains what is not done, one run after another. A run that fails gets no line
// and does not keep the next from beginning; the first failure is returned at
// the end, with the number of all. Cancelled when stopped: called again, it
// goes on. AlreadyExists when another process works in the same `out`;
// InvalidArgument for a CSV with another header, or with lines of other
// settings; the disk's errors where the CSV cannot be written, at once.
absl::Status RunExperiment(const Experiment& experiment,
                           absl::Span<const ExperimentRun> runs,
                           const ExperimentOptions& options);

}  // namespace rivulet

#endif  // RIVULET_WORKER_LAB_EXPERIMENT_H_
