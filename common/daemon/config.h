// One YAML file configures every process of a run. This is what it says, after
// checking; docs/configuration.md, generated from the same table as the parser,
// lists each key with unit, default, range and scope.
//
//   RV_ASSIGN_OR_RETURN(Config config,
//                       LoadConfig("run.yaml", {"train.epochs=3"}));
//
// Scope of a key: `job` keys are hashed and must be equal in every process;
// `local` ones (paths, threads, addresses) may differ; `resumable` ones belong
// to the job but may change when a run is resumed.

#ifndef RIVULET_COMMON_DAEMON_CONFIG_H_
#define RIVULET_COMMON_DAEMON_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace rivulet {

struct ModelConfig {              // model.*
  std::string name = "resnet20";  // a built-in model
  std::string norm = "batch";     // batch | group
  int64_t group_size = 8;
  std::vector<int64_t> hidden = {128, 64};  // mlp
};

struct SyntheticConfig {  // data.synthetic.*
  int64_t train = 2048, test = 512, classes = 10;
  int64_t channels = 3, height = 32, width = 32;
  int64_t seed = 1;
};

struct DataConfig {                       // data.*
  std::string name = "cifar10";           // a built-in data set
  std::string path;                       // local
  std::string augment = "pad_crop_flip";  // none | pad_crop | pad_crop_flip
  int64_t pad = 4;
  SyntheticConfig synthetic;
};

struct TrainConfig {      // train.*
  double epochs = 30;     // the first of the two limits that is reached stops
  int64_t max_steps = 0;  // 0: no limit
  int64_t batch_size = 128;  // global
  int64_t seed = 1;
  bool drop_last = true;
  double evaluate_every_epochs = 1;  // 0: at the end only
  // Batches that re-estimate batch norm's statistics at the end.
  int64_t statistics_batches = 100;
};

struct ScheduleConfig {         // optimizer.schedule.*
  std::string kind = "cosine";  // constant | step | cosine | linear
  double warmup_epochs = 0;
  std::vector<double> milestones;  // epochs, for step
  double gamma = 0.1;
  double final_rate = 0;
};

struct OptimizerConfig {  // optimizer.*
  double learning_rate = 0.1;
  double momentum = 0.9;
  bool nesterov = true;
  double weight_decay = 1e-4;  // added to the local gradient as wd * v̂
  bool decay_small = true;     // whether biases and normalization decay too
  double clip_norm = 0;  // 0: none; whole-model norm of the sum over workers
  ScheduleConfig schedule;
};

struct WarmupConfig {  // compression.warmup.*
  double epochs = 1;
  double start = 0.25;
  double cap = 1.0;
  int64_t rungs = 4;
};

struct DownConfig {    // compression.down.*
  double density = 0;  // 0: workers * density / 2
  int64_t value_bits = 8;
  int64_t small_bits = 8;
};

struct CompressionConfig {        // compression.*
  std::string policy = "warmup";  // none | lossless | fixed | warmup
  double density = 0.001;
  double min_moves = 10;   // how often an entry must be able to move in a run
  int64_t value_bits = 8;  // 1 | 2 | 3 | 4 | 8 | 16 | 32
  std::string rounding = "nearest";  // nearest | stochastic
  std::string levels = "fitted";     // fitted | steps: of 1 to 4 bits
  // Biases and normalization.
  std::string small_form = "dense";  // dense | round_robin | sparse
  int64_t small_bits = 8;
  int64_t small_every = 8;      // round_robin: steps from turn to turn
  double small_density = 0.02;  // sparse
  bool masking = true;
  double compensation = 0;  // c in compression/README.md
  double mask_max_density = 0.02;
  bool flush = true;             // residuals, before the learning rate drops
  int64_t bucket_bytes = 65536;  // a push is sent in pieces of about this size
  WarmupConfig warmup;
  DownConfig down;

  // Whether gradients are sparsified: only then do densities mean something.
  bool is_sparse() const { return policy == "fixed" || policy == "warmup"; }
  // Whether c = 1 is done without any momentum buffer: plain error feedback at
  // the nominal rate.
  bool folds_momentum() const {
    return is_sparse() && masking && compensation == 1;
  }
};

struct ClusterConfig {  // cluster.*
  int64_t workers = 2;
  int64_t shards = 2;
  std::string controller = "127.0.0.1:7070";  // local: where daemons dial
  absl::Duration join_timeout = absl::Minutes(5);
  absl::Duration lease =
      absl::Seconds(30);  // silence after which a daemon counts as lost
};

struct CheckpointConfig {                   // checkpoint.*
  absl::Duration every = absl::Minutes(5);  // 0: by steps only
  int64_t every_steps = 0;                  // 0: by time only
  int64_t keep = 2;                         // newest complete sets that stay
};

struct ReportConfig {  // report.*
  absl::Duration every = absl::Seconds(2);
  int64_t frames_every = 0;  // steps; 0: frames are not kept
};

struct LocalConfig {    // local.*: may differ between processes
  std::string run_dir;  // default: runs/<name>
  int64_t threads = 0;  // of a worker's computation; 0: its share of the cores
                        // (rivulet train: cores / workers)
  std::string listen = "127.0.0.1:0";  // shards; port 0 picks one
  std::string advertise;               // shards; default: what was bound
  std::string log_level = "info";      // debug | info | warning | error
};

struct Config {
  std::string name = "run";
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  CompressionConfig compression;
  ClusterConfig cluster;
  CheckpointConfig checkpoint;
  ReportConfig report;
  LocalConfig local;
};

// Reads `path` and applies `overrides` ("key.path=value", YAML values) on top.
// Every error names file, line, key path, what was found and what is allowed,
// and the nearest known key for an unknown one. Combinations that are known to
// be broken are refused here too (see CheckConfig).
absl::StatusOr<Config> LoadConfig(const std::string& path,
                                  absl::Span<const std::string> overrides);

// As LoadConfig, from a text; `file` is used in messages.
absl::StatusOr<Config> ParseConfig(absl::string_view yaml,
                                   const std::string& file,
                                   absl::Span<const std::string> overrides);

// What goes with what (docs/configuration.md has the table). InvalidArgument
// says why, and what to write instead.
absl::Status CheckConfig(const Config& config);

// The whole config as YAML that ParseConfig reads back to the same value.
std::string ToYaml(const Config& config);

// All job keys as "key=value" lines, sorted, joined by newlines; resumable ones
// are left out where `for_resume` is set.
std::string CanonicalConfig(const Config& config, bool for_resume);
// SHA-256 of it.
std::string ConfigHash(const Config& config, bool for_resume);

// How two canonical texts differ, for messages: "train.seed is 1 for the
// controller, 2 for worker 0; ..." with the names given, the first few keys.
// Neither needs to be well-formed. Empty when nothing differs.
std::string DescribeDifferences(absl::string_view a_name, absl::string_view a,
                                absl::string_view b_name, absl::string_view b);

// docs/configuration.md: every key, from the parser's own table.
std::string ConfigReference();

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CONFIG_H_
