// An experiment's file: a grid of settings and seeds, in YAML.
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
// Reading is as strict as for configs: errors name file, line, key, what was
// found and what is allowed. experiment.h runs what is read.

#ifndef RIVULET_WORKER_LAB_EXPERIMENT_FILE_H_
#define RIVULET_WORKER_LAB_EXPERIMENT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// A key of the config and its value, as a config prints it.
struct Setting {
  std::string key;
  std::string value;

  // As --set takes it: "train.epochs=10".
  std::string Text() const;
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

// The file's own key that gives this key of the config ("seeds" gives
// train.seed), which no setting may then give; empty for all others.
std::string GivenBy(const std::string& key);

// Whether a name that is a folder's and a CSV field's may have this character
// beyond its first.
bool IsNameCharacter(char c);

}  // namespace rivulet

#endif  // RIVULET_WORKER_LAB_EXPERIMENT_FILE_H_
