#include "common/daemon/config_keys.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/nearest_name.h"
#include "data/dataset.h"
#include "models/manifest/manifest.h"

namespace rivulet {
namespace {

// Path and field of a key, from one spelling.
#define RV_KEY(field) #field, +[](Config& c) { return &c.field; }

// A KeySpec being put together.
class Key {
 public:
  template <typename T>
  Key(const char* path, T* (*field)(Config&)) {
    spec_.path = path;
    spec_.field = field;
  }

  Key& Doc(absl::string_view doc) {
    spec_.doc = std::string(doc);
    return *this;
  }
  Key& Unit(absl::string_view unit) {
    spec_.unit = std::string(unit);
    return *this;
  }
  Key& From(double min) {
    spec_.min = min;
    return *this;
  }
  Key& Above(double min) {
    spec_.min = min;
    spec_.above_min = true;
    return *this;
  }
  Key& To(double max) {
    spec_.max = max;
    return *this;
  }
  Key& Below(double max) {
    spec_.max = max;
    spec_.below_max = true;
    return *this;
  }
  Key& Numbers(std::vector<int64_t> numbers) {
    spec_.numbers = std::move(numbers);
    return *this;
  }
  Key& Choices(std::vector<std::string> choices) {
    spec_.choices = std::move(choices);
    return *this;
  }
  Key& Later(std::vector<std::string> later) {
    spec_.later = std::move(later);
    return *this;
  }
  Key& Form(TextForm form) {
    spec_.form = form;
    return *this;
  }
  Key& Local() {
    spec_.scope = KeyScope::kLocal;
    return *this;
  }
  Key& Resumable() {
    spec_.scope = KeyScope::kResumable;
    return *this;
  }

  KeySpec Spec() const { return spec_; }

 private:
  KeySpec spec_;
};

using Table = std::vector<KeySpec>;

constexpr double kMaxSeed = 9007199254740991.0;  // 2^53 - 1
constexpr double kDay = 86400;

void Add(const Key& key, Table* table) { table->push_back(key.Spec()); }

void AddModelKeys(Table* t) {
  Add(Key(RV_KEY(model.name)).Choices(BuiltInModels()).Doc("A built-in model."),
      t);
  Add(Key(RV_KEY(model.norm))
          .Choices({"batch", "group"})
          .Doc("Normalization of ResNets; an `mlp` has none."),
      t);
  Add(Key(RV_KEY(model.group_size))
          .Unit("channels")
          .From(1)
          .To(16)
          .Doc("Channels in a group of group normalization."),
      t);
  Add(Key(RV_KEY(model.hidden))
          .Unit("units")
          .From(1)
          .To(65536)
          .Doc("`mlp` only: the sizes of the hidden layers."),
      t);
}

void AddDataKeys(Table* t) {
  Add(Key(RV_KEY(data.name))
          .Choices(BuiltInDatasets())
          .Doc("A built-in data set."),
      t);
  Add(Key(RV_KEY(data.path))
          .Local()
          .Doc("Folder that holds the data set's files on this machine."),
      t);
  Add(Key(RV_KEY(data.augment))
          .Choices({"none", "pad_crop", "pad_crop_flip"})
          .Doc("How training images are varied: padded and cropped at random, "
               "and mirrored."),
      t);
  Add(Key(RV_KEY(data.pad))
          .Unit("pixels")
          .From(0)
          .To(64)
          .Doc("Width of the padding on each side before the crop."),
      t);
  Add(Key(RV_KEY(data.synthetic.train))
          .Unit("samples")
          .From(1)
          .To(1e8)
          .Doc("Size of the synthetic training set."),
      t);
  Add(Key(RV_KEY(data.synthetic.test))
          .Unit("samples")
          .From(1)
          .To(1e8)
          .Doc("Size of the synthetic test set."),
      t);
  Add(Key(RV_KEY(data.synthetic.classes))
          .From(2)
          .To(1000)
          .Doc("Number of classes."),
      t);
  Add(Key(RV_KEY(data.synthetic.channels))
          .From(1)
          .To(16)
          .Doc("Channels of an image."),
      t);
  Add(Key(RV_KEY(data.synthetic.height))
          .Unit("pixels")
          .From(1)
          .To(1024)
          .Doc("Height of an image."),
      t);
  Add(Key(RV_KEY(data.synthetic.width))
          .Unit("pixels")
          .From(1)
          .To(1024)
          .Doc("Width of an image."),
      t);
  Add(Key(RV_KEY(data.synthetic.seed))
          .From(0)
          .To(kMaxSeed)
          .Doc("Seed of the data set itself, apart from the run's."),
      t);
}

void AddTrainKeys(Table* t) {
  Add(Key(RV_KEY(train.epochs))
          .Unit("epochs")
          .Above(0)
          .To(1e6)
          .Resumable()
          .Doc("Length of the training; fractions are fine. The first of "
               "`epochs` and `max_steps` that is reached ends it, and all "
               "schedules end there."),
      t);
  Add(Key(RV_KEY(train.max_steps))
          .Unit("steps")
          .From(0)
          .To(1e12)
          .Resumable()
          .Doc("Upper limit of the training's length; 0: none."),
      t);
  Add(Key(RV_KEY(train.batch_size))
          .Unit("samples")
          .From(1)
          .To(1e6)
          .Doc("Global batch: the workers share it."),
      t);
  Add(Key(RV_KEY(train.seed))
          .From(0)
          .To(kMaxSeed)
          .Doc("Of initial weights, order of samples and augmentation."),
      t);
  Add(Key(RV_KEY(train.drop_last))
          .Doc("Leave out an epoch's last batch where it is not whole."),
      t);
  Add(Key(RV_KEY(train.evaluate_every_epochs))
          .Unit("epochs")
          .From(0)
          .To(1e6)
          .Resumable()
          .Doc("How often the test set is evaluated; 0: at the end only."),
      t);
  Add(Key(RV_KEY(train.statistics_batches))
          .Unit("batches")
          .From(0)
          .To(1e6)
          .Doc("Batches that re-estimate batch normalization's statistics for "
               "the final weights."),
      t);
}

void AddOptimizerKeys(Table* t) {
  Add(Key(RV_KEY(optimizer.learning_rate))
          .Above(0)
          .To(1000)
          .Doc("Peak of the schedule."),
      t);
  Add(Key(RV_KEY(optimizer.momentum))
          .From(0)
          .Below(1)
          .Doc("Momentum of SGD; with compression it lives in the workers "
               "(momentum correction)."),
      t);
  Add(Key(RV_KEY(optimizer.nesterov)).Doc("Nesterov's form of momentum."), t);
  Add(Key(RV_KEY(optimizer.weight_decay))
          .From(0)
          .To(1)
          .Doc("Added to the local gradient, times the weight."),
      t);
  Add(Key(RV_KEY(optimizer.decay_small))
          .Doc("Whether biases and normalization decay too."),
      t);
  Add(Key(RV_KEY(optimizer.clip_norm))
          .From(0)
          .To(1e9)
          .Doc("Bound on the norm of the whole model's gradient, of which each "
               "worker takes `clip_norm / sqrt(workers)`; 0: none. With it, "
               "sending starts only after the whole backward pass."),
      t);
  Add(Key(RV_KEY(optimizer.schedule.kind))
          .Choices({"constant", "step", "cosine", "linear"})
          .Doc("How the learning rate falls."),
      t);
  Add(Key(RV_KEY(optimizer.schedule.warmup_epochs))
          .Unit("epochs")
          .From(0)
          .To(1e6)
          .Doc("Linear rise of the learning rate at the start."),
      t);
  Add(Key(RV_KEY(optimizer.schedule.milestones))
          .Unit("epochs")
          .Above(0)
          .To(1e6)
          .Doc("`step` only: when the rate is multiplied by `gamma`."),
      t);
  Add(Key(RV_KEY(optimizer.schedule.gamma))
          .Above(0)
          .To(1)
          .Doc("`step` only: the factor."),
      t);
  Add(Key(RV_KEY(optimizer.schedule.final_rate))
          .From(0)
          .To(1000)
          .Doc("`cosine` and `linear`: the rate at the end."),
      t);
}

void AddCompressionKeys(Table* t) {
  Add(Key(RV_KEY(compression.policy))
          .Choices({"none", "lossless", "fixed", "warmup"})
          .Later({"variance", "neural"})
          .Doc("`none`: dense gradients, momentum in the shards. `lossless`: "
               "the compressed path with everything sent in 32 bits. `fixed`: "
               "one density. `warmup`: DGC's ladder of densities first."),
      t);
  Add(Key(RV_KEY(compression.density))
          .Above(0)
          .To(1)
          .Doc("Share of each weight tensor's entries that a worker sends in a "
               "step, after the warm-up; at least `min_moves` / steps."),
      t);
  Add(Key(RV_KEY(compression.min_moves))
          .From(0)
          .To(1e6)
          .Doc(
              "How often an entry must be able to move in a run: it moves once "
              "in 1 / density steps. Fewer than 10 are for short trials of "
              "what a long run will do; 0: no check."),
      t);
  Add(Key(RV_KEY(compression.value_bits))
          .Unit("bits")
          .Numbers({1, 2, 3, 4, 8, 16, 32})
          .Doc("Of a value that is sent, sign included. 1: the sign times the "
               "mean magnitude; 2 to 4: up to 2, 4, 8 magnitudes, fitted to "
               "each step's values."),
      t);
  Add(Key(RV_KEY(compression.rounding))
          .Choices({"nearest", "stochastic"})
          .Doc("`stochastic` is unbiased; `nearest` has the smaller error, "
               "which the sender keeps for later steps."),
      t);
  Add(Key(RV_KEY(compression.levels))
          .Choices({"fitted", "steps"})
          .Doc("Of 1 to 4 bits: `fitted` by Lloyd and Max, or equal `steps` "
               "above the smallest value sent."),
      t);
  Add(Key(RV_KEY(compression.small_form))
          .Choices({"dense", "round_robin", "sparse"})
          .Doc("How biases and normalization are sent: all of them in every "
               "step, in turns, or the largest few."),
      t);
  Add(Key(RV_KEY(compression.small_bits))
          .Unit("bits")
          .Numbers({4, 8, 16, 32})
          .Doc("Of their values, and of all when residuals are flushed."),
      t);
  Add(Key(RV_KEY(compression.small_every))
          .Unit("steps")
          .From(1)
          .To(64)
          .Doc("`round_robin`: from one turn of a tensor to the next."),
      t);
  Add(Key(RV_KEY(compression.small_density))
          .Above(0)
          .To(1)
          .Doc("`sparse`: the share of them that is sent."),
      t);
  Add(Key(RV_KEY(compression.masking))
          .Doc("Momentum factor masking: momentum is cleared where something "
               "was sent."),
      t);
  Add(Key(RV_KEY(compression.compensation))
          .From(0)
          .To(1)
          .Doc("How much of the momentum that masking would lose is sent "
               "along: 0 is DGC, 1 keeps the nominal learning rate at every "
               "density and needs no momentum buffer."),
      t);
  Add(Key(RV_KEY(compression.mask_max_density))
          .From(0)
          .To(1)
          .Doc("Tensors sent at a higher density are not masked."),
      t);
  Add(Key(RV_KEY(compression.flush))
          .Doc("Send all residuals, densely, before each drop of the `step` "
               "schedule, and in the last step of a run whose learning rate "
               "has not gone to 0 by then."),
      t);
  Add(Key(RV_KEY(compression.bucket_bytes))
          .Unit("bytes")
          .From(1024)
          .To(1 << 20)
          .Doc("A push is sent in pieces of about this size."),
      t);
  Add(Key(RV_KEY(compression.warmup.epochs))
          .Unit("epochs")
          .From(0)
          .To(1e6)
          .Doc("Length of the ladder."),
      t);
  Add(Key(RV_KEY(compression.warmup.start))
          .Above(0)
          .To(1)
          .Doc("Density of the first rung."),
      t);
  Add(Key(RV_KEY(compression.warmup.cap))
          .Above(0)
          .To(1)
          .Doc("No rung is denser; a low cap saves most of the ladder's "
               "bytes."),
      t);
  Add(Key(RV_KEY(compression.warmup.rungs))
          .From(1)
          .To(16)
          .Doc("Number of rungs, geometric between `start` and the target."),
      t);
  Add(Key(RV_KEY(compression.down.density))
          .From(0)
          .To(1)
          .Doc("Share of the entries in a shard's answer, after the warm-up; "
               "during it, it is scaled with the workers' density. 0: "
               "`workers * density / 2`."),
      t);
  Add(Key(RV_KEY(compression.down.value_bits))
          .Unit("bits")
          .Numbers({1, 2, 3, 4, 8, 16, 32})
          .Doc("Of a value in a shard's answer."),
      t);
  Add(Key(RV_KEY(compression.down.small_bits))
          .Unit("bits")
          .Numbers({4, 8, 16, 32})
          .Doc("The same for biases and normalization."),
      t);
}

void AddClusterKeys(Table* t) {
  Add(Key(RV_KEY(cluster.workers))
          .From(1)
          .To(1024)
          .Doc("Number of worker processes."),
      t);
  Add(Key(RV_KEY(cluster.shards))
          .From(1)
          .To(256)
          .Doc("Number of server processes, each of which owns a part of the "
               "parameters."),
      t);
  Add(Key(RV_KEY(cluster.controller))
          .Form(TextForm::kAddress)
          .Local()
          .Doc("Where daemons dial the controller, and where it listens."),
      t);
  Add(Key(RV_KEY(cluster.join_timeout))
          .From(1)
          .To(7 * kDay)
          .Resumable()
          .Doc("How long everybody waits for all to be there."),
      t);
  Add(Key(RV_KEY(cluster.lease))
          .From(1)
          .To(kDay)
          .Resumable()
          .Doc("Silence after which a daemon, or a connection between two, "
               "counts as lost."),
      t);
}

void AddFolderKeys(Table* t) {
  Add(Key(RV_KEY(checkpoint.every))
          .From(0)
          .To(30 * kDay)
          .Resumable()
          .Doc("Time between checkpoints; `0s`: by steps only."),
      t);
  Add(Key(RV_KEY(checkpoint.every_steps))
          .Unit("steps")
          .From(0)
          .To(1e12)
          .Resumable()
          .Doc("Steps between checkpoints, counted as workers report them "
               "(`report.every`); 0: by time only."),
      t);
  Add(Key(RV_KEY(checkpoint.keep))
          .From(1)
          .To(1000)
          .Resumable()
          .Doc("How many of the newest complete checkpoints stay."),
      t);
  Add(Key(RV_KEY(report.every))
          .From(0.1)
          .To(3600)
          .Resumable()
          .Doc("Time between the workers' reports, which are the lines of "
               "`metrics.csv`."),
      t);
  Add(Key(RV_KEY(report.frames_every))
          .Unit("steps")
          .From(0)
          .To(1e12)
          .Resumable()
          .Doc(
              "Each worker keeps what it sends and receives in every so "
              "manieth step below `frames/`, for `rivulet inspect`; 0: never."),
      t);
  Add(Key(RV_KEY(local.run_dir))
          .Local()
          .Doc("Run folder; empty: `runs/<name>`."),
      t);
  Add(Key(RV_KEY(local.threads))
          .From(0)
          .To(1024)
          .Local()
          .Doc("Threads of a worker's computation; 0: the machine's cores, "
               "shared evenly by the run's workers on it."),
      t);
  Add(Key(RV_KEY(local.listen))
          .Form(TextForm::kAddress)
          .Local()
          .Doc("Where a shard listens; port 0 picks a free one."),
      t);
  Add(Key(RV_KEY(local.advertise))
          .Form(TextForm::kOptionalAddress)
          .Local()
          .Doc("Where workers reach this shard; empty: what it listens "
               "on."),
      t);
  Add(Key(RV_KEY(local.log_level))
          .Choices({"debug", "info", "warning", "error"})
          .Local()
          .Doc("Least severe kind of log line that is written."),
      t);
}

Table BuildTable() {
  Table table;
  Add(Key(RV_KEY(name))
          .Form(TextForm::kName)
          .Resumable()
          .Doc("Name of the run; its folder is called after it."),
      &table);
  AddModelKeys(&table);
  AddDataKeys(&table);
  AddTrainKeys(&table);
  AddOptimizerKeys(&table);
  AddCompressionKeys(&table);
  AddClusterKeys(&table);
  AddFolderKeys(&table);
  return table;
}

#undef RV_KEY

absl::string_view LastPart(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace

const std::vector<KeySpec>& ConfigKeys() {
  static const Table* const table = new Table(BuildTable());
  return *table;
}

const KeySpec* FindKey(absl::string_view path) {
  for (const KeySpec& key : ConfigKeys()) {
    if (path == absl::string_view(key.path)) return &key;
  }
  return nullptr;
}

std::vector<std::string> NamesIn(absl::string_view section) {
  const std::string prefix =
      section.empty() ? std::string() : absl::StrCat(section, ".");
  std::vector<std::string> names;
  for (const KeySpec& key : ConfigKeys()) {
    if (!absl::StartsWith(key.path, prefix)) continue;
    const std::string rest = key.path.substr(prefix.size());
    std::string name = rest.substr(0, rest.find('.'));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

bool IsSection(absl::string_view path) {
  if (path.empty()) return true;
  const std::string prefix = absl::StrCat(path, ".");
  return std::any_of(
      ConfigKeys().begin(), ConfigKeys().end(),
      [&](const KeySpec& key) { return absl::StartsWith(key.path, prefix); });
}

std::string SuggestKey(absl::string_view section, absl::string_view name) {
  // Long garbage resembles nothing, and the distance costs the product of the
  // lengths.
  if (name.size() > 64) return "";
  std::string best;
  const size_t farthest =
      name.size() <= 3 ? 1 : std::max<size_t>(2, name.size() / 3);
  size_t best_distance = farthest + 1;
  const auto consider = [&](const std::string& candidate, size_t distance) {
    if (distance >= best_distance) return;
    best_distance = distance;
    best = candidate;
  };
  for (const std::string& known : NamesIn(section)) {
    consider(known, EditDistance(name, known));
  }
  for (const KeySpec& key : ConfigKeys()) {
    consider(key.path, EditDistance(name, key.path));
    // The right name in the wrong section; one more than its distance, so that
    // a neighbour wins a tie.
    consider(key.path, EditDistance(name, LastPart(key.path)) + 1);
  }
  return best;
}

}  // namespace rivulet
