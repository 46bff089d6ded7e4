#include "common/daemon/config_rules.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/daemon/config_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct RuleCase {
  const char* name;
  std::function<void(Config&)> change;
  const char* key;  // what the message starts with; null: allowed
  const char* part;
};

std::vector<RuleCase> Cases() {
  return {
      {"as it is", [](Config&) {}, nullptr, ""},
      {"no folder", [](Config& c) { c.data.name = "cifar10"; }, "data.path",
       "data.name cifar10"},
      {"a folder",
       [](Config& c) {
         c.data.name = "cifar10";
         c.data.path = "x";
       },
       nullptr, ""},
      {"pad as wide as the image",
       [](Config& c) {
         c.data.augment = "pad_crop";
         c.data.pad = 16;
       },
       "data.pad", "below 16"},
      {"pad of the smaller side",
       [](Config& c) {
         c.data.augment = "pad_crop_flip";
         c.data.synthetic.width = 4;
         c.data.pad = 5;
       },
       "data.pad", "below 4"},
      {"pad without augmentation", [](Config& c) { c.data.pad = 60; }, nullptr,
       ""},
      {"a group of 3",
       [](Config& c) {
         c.model.name = "resnet20";
         c.model.norm = "group";
         c.model.group_size = 3;
       },
       "model.group_size", "1, 2, 4, 8 or 16"},
      {"an mlp does not look at groups",
       [](Config& c) {
         c.model.norm = "group";
         c.model.group_size = 3;
       },
       nullptr, ""},
      {"a worker without samples", [](Config& c) { c.cluster.workers = 65; },
       "train.batch_size", "at least as many as workers"},
      {"one sample a worker", [](Config& c) { c.cluster.workers = 64; },
       nullptr, ""},
      {"Nesterov without momentum", [](Config& c) { c.optimizer.momentum = 0; },
       "optimizer.nesterov", "a momentum above 0"},
      {"plain SGD",
       [](Config& c) {
         c.optimizer.momentum = 0;
         c.optimizer.nesterov = false;
       },
       nullptr, ""},
      {"steps without milestones",
       [](Config& c) { c.optimizer.schedule.kind = "step"; },
       "optimizer.schedule.milestones", "found none"},
      {"falling milestones",
       [](Config& c) {
         c.optimizer.schedule.kind = "step";
         c.optimizer.schedule.milestones = {3, 2};
       },
       "optimizer.schedule.milestones", "found 2 after 3"},
      {"repeated milestones",
       [](Config& c) {
         c.optimizer.schedule.kind = "step";
         c.optimizer.schedule.milestones = {2, 2};
       },
       "optimizer.schedule.milestones", "increasing"},
      {"rising milestones",
       [](Config& c) {
         c.optimizer.schedule.kind = "step";
         c.optimizer.schedule.milestones = {2, 3};
       },
       nullptr, ""},
      {"milestones with a cosine",
       [](Config& c) { c.optimizer.schedule.milestones = {2}; },
       "optimizer.schedule.milestones", "cosine"},
      {"a rate that rises",
       [](Config& c) { c.optimizer.schedule.final_rate = 0.2; },
       "optimizer.schedule.final_rate", "at most"},
      {"compensation without masking",
       [](Config& c) {
         c.compression.compensation = 1;
         c.compression.masking = false;
       },
       "compression.compensation", "masking"},
      {"compensation without momentum",
       [](Config& c) {
         c.compression.compensation = 1;
         c.optimizer.momentum = 0;
         c.optimizer.nesterov = false;
       },
       "compression.compensation", "no momentum"},
      {"compensation", [](Config& c) { c.compression.compensation = 1; },
       nullptr, ""},
      {"a downlink that diverges",
       [](Config& c) { c.compression.down.density = 0.03; },
       "compression.down.density", "diverges"},
      {"a downlink at a third",
       [](Config& c) { c.compression.down.density = 0.1 / 3; }, nullptr, ""},
      {"a full downlink for many workers",
       [](Config& c) {
         c.compression.density = 0.5;
         c.cluster.workers = 64;
         c.compression.down.density = 1;
         c.compression.warmup.start = 0.5;
       },
       nullptr, ""},
      {"no density to compare with",
       [](Config& c) {
         c.compression.policy = "lossless";
         c.compression.down.density = 1e-6;
         c.compression.warmup.cap = 1e-6;
       },
       nullptr, ""},
      {"a ladder from below",
       [](Config& c) { c.compression.warmup.start = 0.01; },
       "compression.warmup.start", "fixed"},
      {"a cap below the target",
       [](Config& c) { c.compression.warmup.cap = 0.01; },
       "compression.warmup.cap", "sparser"},
      {"a ladder that is not climbed",
       [](Config& c) {
         c.compression.policy = "fixed";
         c.compression.warmup.start = 0.01;
       },
       nullptr, ""},
      {"no evaluation on the way and no checkpoints",
       [](Config& c) {
         c.train.evaluate_every_epochs = 0;
         c.checkpoint.every = absl::ZeroDuration();
         c.checkpoint.every_steps = 0;
       },
       nullptr, ""},
      {"out of range by hand", [](Config& c) { c.cluster.workers = 0; },
       "cluster.workers", "from 1 to 1024"},
      {"an unknown model by hand", [](Config& c) { c.model.name = "vgg"; },
       "model.name", "resnet20"},
      {"a later policy by hand",
       [](Config& c) { c.compression.policy = "neural"; }, "compression.policy",
       "not in this version"},
  };
}

TEST(ConfigRulesTest, RefusesWhatIsBrokenAndNothingElse) {
  for (const RuleCase& test : Cases()) {
    SCOPED_TRACE(test.name);
    Config config = SmallConfig();
    test.change(config);
    if (test.key == nullptr) {
      RV_EXPECT_OK(CheckConfig(config));
      continue;
    }
    EXPECT_THAT(
        CheckConfig(config),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(StartsWith(std::string(test.key) + ": found "),
                       HasSubstr("; allowed: "), HasSubstr(test.part))));
  }
}

TEST(ConfigRulesTest, EveryRuleNamesAKeyAndIsBrokenBySomeCase) {
  std::set<std::string> broken;
  for (const RuleCase& test : Cases()) {
    if (test.key == nullptr) continue;
    Config config = SmallConfig();
    test.change(config);
    for (const ConfigRule& rule : ConfigRules()) {
      if (!rule.check(config).empty()) broken.insert(rule.need);
    }
  }
  for (const ConfigRule& rule : ConfigRules()) {
    EXPECT_NE(FindKey(rule.key), nullptr) << rule.key;
    EXPECT_EQ(broken.count(rule.need), 1u) << rule.need;
  }
}

}  // namespace
}  // namespace rivulet
