// Runs of an experiment: a grid of settings and seeds (experiment_file.h), each
// of whose runs is a run in this process (in_process_cluster.h) and, once
// finished, a line of a CSV (results_file.h).
//
// Runs are ordered by seed, then by combination, then by arm, so that the first
// results can be compared.

#ifndef RIVULET_WORKER_LAB_EXPERIMENT_H_
#define RIVULET_WORKER_LAB_EXPERIMENT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/daemon/config.h"
#include "proto/controller.pb.h"
#include "worker/lab/experiment_file.h"
#include "worker/lab/results_file.h"

namespace rivulet {

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
