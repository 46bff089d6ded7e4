#include "common/daemon/config_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/daemon/config_keys.h"
#include "common/daemon/config_values.h"
#include "data/dataset.h"
#include "models/manifest/manifest.h"

namespace rivulet {
namespace {

std::string DataPath(const Config& c) {
  if (c.data.name == "synthetic" || !c.data.path.empty()) return "";
  return absl::StrCat("found no folder for data.name ", c.data.name,
                      "; allowed: the folder that holds its files, or "
                      "data.name: synthetic, which needs none");
}

std::string Pad(const Config& c) {
  if (c.data.augment == "none") return "";
  DatasetOptions options;
  options.name = c.data.name;
  options.synthetic_shape = {c.data.synthetic.channels, c.data.synthetic.height,
                             c.data.synthetic.width};
  const auto info = DescribeDataset(options);
  if (!info.ok()) return "";  // data.name has its own complaint
  const int64_t side = std::min(info->shape.height, info->shape.width);
  if (c.data.pad < side) return "";
  return absl::StrCat("found ", c.data.pad, "; allowed: below ", side,
                      ", the image's side: a crop could miss the image "
                      "altogether. Write a smaller one, or data.augment: none");
}

std::string GroupSize(const Config& c) {
  if (c.model.norm != "group" || c.model.name == "mlp" ||
      kResNetStageChannels[0] % c.model.group_size == 0) {
    return "";
  }
  return absl::StrCat("found ", c.model.group_size,
                      "; allowed: 1, 2, 4, 8 or 16, since groups must divide "
                      "the 16 channels of the narrowest layer");
}

std::string BatchSize(const Config& c) {
  if (c.train.batch_size >= c.cluster.workers) return "";
  return absl::StrCat("found ", c.train.batch_size, " with cluster.workers ",
                      c.cluster.workers,
                      "; allowed: at least as many as workers: the batch is "
                      "global, and a worker without a sample only waits");
}

std::string Nesterov(const Config& c) {
  if (!c.optimizer.nesterov || c.optimizer.momentum > 0) return "";
  return "found true with optimizer.momentum 0; allowed: false, or a momentum "
         "above 0: Nesterov's form looks ahead along the momentum";
}

std::string Milestones(const Config& c) {
  const auto& schedule = c.optimizer.schedule;
  if (schedule.kind != "step") {
    if (schedule.milestones.empty()) return "";
    return absl::StrCat("found a list with optimizer.schedule.kind ",
                        schedule.kind,
                        ", which has no use for it; allowed: [], or kind: "
                        "step");
  }
  if (schedule.milestones.empty()) {
    return "found none with optimizer.schedule.kind step; allowed: a list such "
           "as [81, 122], in epochs, or kind: constant";
  }
  for (size_t i = 1; i < schedule.milestones.size(); ++i) {
    if (schedule.milestones[i] > schedule.milestones[i - 1]) continue;
    return absl::StrCat("found ", FormatNumber(schedule.milestones[i]),
                        " after ", FormatNumber(schedule.milestones[i - 1]),
                        "; allowed: an increasing list");
  }
  return "";
}

std::string FinalRate(const Config& c) {
  const auto& schedule = c.optimizer.schedule;
  if (schedule.final_rate <= c.optimizer.learning_rate) return "";
  return absl::StrCat("found ", FormatNumber(schedule.final_rate),
                      "; allowed: at most optimizer.learning_rate, ",
                      FormatNumber(c.optimizer.learning_rate),
                      ": it is where the schedule falls to");
}

std::string CompensationNeedsMasking(const Config& c) {
  if (c.compression.compensation == 0 || c.compression.masking) return "";
  return absl::StrCat("found ", FormatNumber(c.compression.compensation),
                      " with compression.masking false; allowed: 0, or "
                      "masking: true: it makes up for the momentum that "
                      "masking clears, and without masking that momentum would "
                      "count twice");
}

std::string CompensationNeedsMomentum(const Config& c) {
  if (c.compression.compensation == 0 || c.optimizer.momentum > 0) return "";
  return absl::StrCat("found ", FormatNumber(c.compression.compensation),
                      " with optimizer.momentum 0; allowed: 0: there is no "
                      "momentum that masking could lose");
}

std::string DownDensity(const Config& c) {
  const double down = c.compression.down.density;
  if (!c.compression.is_sparse() || down == 0) return "";
  const double up =
      static_cast<double>(c.cluster.workers) * c.compression.density;
  const double least = std::min(1.0, up / 3);
  if (down >= least) return "";
  return absl::StrCat(
      "found ", FormatNumber(down), "; allowed: 0 (which takes ",
      FormatNumber(std::min(1.0, up / 2)), ") or at least ",
      FormatNumber(least),
      ", a third of cluster.workers * compression.density: the workers cannot "
      "see the change that a shard has not sent yet, push it again, and the "
      "training diverges");
}

// Of a density of the warm-up's ladder; `why` says it of this one.
std::string AtLeastDensity(const Config& c, double found,
                           absl::string_view why) {
  if (c.compression.policy != "warmup" || found >= c.compression.density) {
    return "";
  }
  return absl::StrCat("found ", FormatNumber(found),
                      "; allowed: at least compression.density, ",
                      FormatNumber(c.compression.density), ": ", why);
}

std::string WarmupStart(const Config& c) {
  return AtLeastDensity(c, c.compression.warmup.start,
                        "the ladder leads down to it. Without a ladder write "
                        "compression.policy: fixed");
}

std::string WarmupCap(const Config& c) {
  return AtLeastDensity(c, c.compression.warmup.cap,
                        "a lower cap would make the warm-up sparser than what "
                        "follows");
}

std::vector<ConfigRule> BuildRules() {
  return {
      {"model.group_size",
       "Divides 16, the channels of a ResNet's narrowest layer, with "
       "`model.norm: group`.",
       GroupSize},
      {"data.path", "Set, unless `data.name` is `synthetic`.", DataPath},
      {"data.pad",
       "Below the image's side, unless `data.augment` is `none`: a crop must "
       "meet the image.",
       Pad},
      {"train.batch_size",
       "At least `cluster.workers`: the batch is global and is shared.",
       BatchSize},
      {"optimizer.nesterov", "Needs `optimizer.momentum` above 0.", Nesterov},
      {"optimizer.schedule.milestones",
       "Given and increasing with `optimizer.schedule.kind: step`, empty with "
       "the others.",
       Milestones},
      {"optimizer.schedule.final_rate",
       "At most `optimizer.learning_rate`: schedules fall.", FinalRate},
      {"compression.compensation",
       "Above 0 needs `compression.masking`: it makes up for what masking "
       "clears.",
       CompensationNeedsMasking},
      {"compression.compensation",
       "Above 0 needs `optimizer.momentum` above 0: without momentum nothing "
       "is lost.",
       CompensationNeedsMomentum},
      {"compression.down.density",
       "0, or at least a third of `cluster.workers * compression.density`: a "
       "sparser answer leaves changes that the workers push again, and the "
       "training diverges. (Policies `fixed` and `warmup`; the others have no "
       "density.)",
       DownDensity},
      {"compression.warmup.start",
       "At least `compression.density` with policy `warmup`.", WarmupStart},
      {"compression.warmup.cap",
       "At least `compression.density` with policy `warmup`.", WarmupCap},
  };
}

}  // namespace

const std::vector<ConfigRule>& ConfigRules() {
  static const auto* const rules = new std::vector<ConfigRule>(BuildRules());
  return *rules;
}

std::optional<ConfigComplaint> FindComplaint(const Config& config) {
  for (const KeySpec& key : ConfigKeys()) {
    if (const absl::Status status = CheckKey(key, config); !status.ok()) {
      return ConfigComplaint{key.path, std::string(status.message())};
    }
  }
  for (const ConfigRule& rule : ConfigRules()) {
    std::string message = rule.check(config);
    if (!message.empty()) return ConfigComplaint{rule.key, std::move(message)};
  }
  return std::nullopt;
}

}  // namespace rivulet
