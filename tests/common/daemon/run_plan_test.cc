#include "common/daemon/run_plan.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Of SmallConfig's mlp: 0 fc.weight, 1 its bias.
constexpr int kWeight = 0;
constexpr int kBias = 1;

// 32 steps an epoch, 10 epochs.
Config FixedConfig() {
  Config config = SmallConfig();
  config.compression.policy = "fixed";
  return config;
}

std::shared_ptr<const RunPlan> Plan(const Config& config) {
  auto plan = RunPlan::Create(config);
  RV_CHECK(plan.ok()) << plan.status().ToString();
  return *plan;
}

TEST(RunPlanTest, FirstOfEpochsAndStepsEndsTheRun) {
  Config config = FixedConfig();
  EXPECT_EQ(Plan(config)->steps_per_epoch(), 32);
  EXPECT_EQ(Plan(config)->total_steps(), 320);
  config.train.max_steps = 250;
  EXPECT_EQ(Plan(config)->total_steps(), 250);
  config.train.max_steps = 1000;
  EXPECT_EQ(Plan(config)->total_steps(), 320);
  config.train.epochs = 7.51;  // 240.3 steps
  EXPECT_EQ(Plan(config)->total_steps(), 240);
}

TEST(RunPlanTest, ARunHasAtLeastOneStep) {
  Config config = FixedConfig();
  config.compression.policy = "none";
  config.train.epochs = 1e-6;
  const auto plan = Plan(config);
  EXPECT_EQ(plan->total_steps(), 1);
  EXPECT_TRUE(plan->IsLast(0));
  EXPECT_TRUE(plan->EvaluatesAfter(0));
}

TEST(RunPlanTest, IncompleteBatchesCountUnlessDropped) {
  Config config = FixedConfig();
  config.data.synthetic.train = 2050;
  EXPECT_EQ(Plan(config)->steps_per_epoch(), 32);
  config.train.drop_last = false;
  EXPECT_EQ(Plan(config)->steps_per_epoch(), 33);
  config.train.drop_last = true;
  config.data.synthetic.train = 63;
  EXPECT_THAT(RunPlan::Create(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("train.batch_size: found 64 with 63")));
}

TEST(RunPlanTest, EvaluatesEveryFewEpochsAndAtTheEnd) {
  Config config = FixedConfig();
  config.train.evaluate_every_epochs = 2.5;  // 80 steps
  config.train.max_steps = 250;
  const auto plan = Plan(config);
  std::vector<int64_t> after;
  for (int64_t step = 0; step < plan->total_steps(); ++step) {
    if (plan->EvaluatesAfter(step)) after.push_back(step);
  }
  EXPECT_EQ(after, (std::vector<int64_t>{79, 159, 239, 249}));

  config.train.evaluate_every_epochs = 0;
  EXPECT_FALSE(Plan(config)->EvaluatesAfter(79));
  EXPECT_TRUE(Plan(config)->EvaluatesAfter(249));
  // More often than every step is every step.
  config.train.evaluate_every_epochs = 0.001;
  EXPECT_TRUE(Plan(config)->EvaluatesAfter(0));
}

TEST(RunPlanTest, FixedPolicySendsOneDensityAndSmallTensorsWhole) {
  Config config = FixedConfig();
  config.compression.value_bits = 16;
  config.compression.small_bits = 32;
  config.compression.down.small_bits = 16;
  config.cluster.workers = 4;
  const auto plan = Plan(config);
  EXPECT_EQ(plan->Up(kWeight, 0), (TensorPlan{0.05, 16}));
  EXPECT_EQ(plan->Up(kWeight, 318), (TensorPlan{0.05, 16}));
  EXPECT_EQ(plan->Up(kBias, 0), (TensorPlan{1.0, 32}));
  // workers * density / 2
  EXPECT_DOUBLE_EQ(plan->Down(kWeight, 0).density, 0.1);
  EXPECT_EQ(plan->Down(kWeight, 0).value_bits, 8);
  EXPECT_EQ(plan->Down(kBias, 0), (TensorPlan{1.0, 16}));
  EXPECT_EQ(plan->steady_from(), 0);
  EXPECT_FALSE(plan->DownIsExact(318));
}

TEST(RunPlanTest, TheLastAnswerIsExact) {
  const auto plan = Plan(FixedConfig());
  EXPECT_TRUE(plan->DownIsExact(319));
  EXPECT_EQ(plan->Down(kWeight, 319), (TensorPlan{1.0, 32}));
  EXPECT_EQ(plan->Down(kBias, 319), (TensorPlan{1.0, 32}));
}

TEST(RunPlanTest, WarmupClimbsDownTheLadderBothWays) {
  Config config = SmallConfig();
  config.train.epochs = 100;
  config.compression.density = 0.00390625;  // a quarter, four times
  config.compression.warmup = {.epochs = 4, .start = 1, .cap = 0.5, .rungs = 4};
  config.compression.warmup.start = 1;
  config.cluster.workers = 2;
  const auto plan = Plan(config);
  EXPECT_EQ(plan->steady_from(), 128);
  const double rungs[] = {0.5, 0.25, 0.0625, 0.015625, 0.00390625};
  for (int rung = 0; rung < 5; ++rung) {
    SCOPED_TRACE(rung);
    for (const int64_t step : {32 * rung, 32 * rung + 31}) {
      EXPECT_NEAR(plan->Up(kWeight, step).density, rungs[rung], 1e-12);
      EXPECT_NEAR(plan->Down(kWeight, step).density, rungs[rung], 1e-12);
    }
  }
}

TEST(RunPlanTest, AGivenDownDensityKeepsItsRatioThroughTheWarmup) {
  Config config = SmallConfig();
  config.compression.density = 0.04;
  config.compression.down.density = 0.03;
  config.compression.warmup.start = 0.16;
  config.compression.warmup.epochs = 1;
  const auto plan = Plan(config);
  EXPECT_DOUBLE_EQ(plan->Down(kWeight, 0).density, 0.12);
  EXPECT_DOUBLE_EQ(plan->Down(kWeight, 40).density, 0.03);
}

TEST(RunPlanTest, HighDensitiesBecomeDense) {
  Config config = FixedConfig();
  config.compression.density = 0.55;
  config.cluster.workers = 4;
  EXPECT_EQ(Plan(config)->Up(kWeight, 0).density, 0.55);
  EXPECT_EQ(Plan(config)->Down(kWeight, 0).density, 1.0);  // not 1.1
  config.compression.density = 0.6;
  EXPECT_EQ(Plan(config)->Up(kWeight, 0), (TensorPlan{1.0, 8}));
}

TEST(RunPlanTest, FlushSendsEverythingBeforeTheRateDrops) {
  Config config = FixedConfig();
  config.optimizer.schedule.kind = "step";
  config.optimizer.schedule.milestones = {2, 5, 50};
  config.compression.small_bits = 16;
  const auto plan = Plan(config);
  for (const int64_t step : {63, 159}) {
    EXPECT_EQ(plan->Up(kWeight, step), (TensorPlan{1.0, 16}));
    EXPECT_EQ(plan->Down(kWeight, step), (TensorPlan{1.0, 8}));
    EXPECT_NEAR(plan->LearningRate(step + 1), 0.1 * plan->LearningRate(step),
                1e-12);
  }
  for (const int64_t step : {0, 62, 64, 158, 160, 318}) {
    EXPECT_EQ(plan->Up(kWeight, step).density, 0.05) << step;
    EXPECT_EQ(plan->Down(kWeight, step).density, 0.05) << step;
  }
  config.compression.flush = false;
  EXPECT_EQ(Plan(config)->Up(kWeight, 63).density, 0.05);
}

TEST(RunPlanTest, FlushSendsEverythingAtTheEndWhereItCounts) {
  Config config = FixedConfig();
  const auto density_at_the_end = [&] {
    const auto plan = Plan(config);
    return plan->Up(kWeight, plan->total_steps() - 1).density;
  };
  config.optimizer.schedule.kind = "constant";
  EXPECT_EQ(density_at_the_end(), 1.0);
  config.optimizer.schedule.kind = "cosine";
  EXPECT_EQ(density_at_the_end(), 0.05) << "the rate has gone to 0";
  config.optimizer.schedule.final_rate = 0.5 * config.optimizer.learning_rate;
  EXPECT_EQ(density_at_the_end(), 1.0);
  config.compression.flush = false;
  EXPECT_EQ(density_at_the_end(), 0.05);
}

TEST(RunPlanTest, WithoutCompressionEverythingIsDenseAndExact) {
  for (const char* policy : {"none", "lossless"}) {
    SCOPED_TRACE(policy);
    Config config = SmallConfig();
    config.compression.policy = policy;
    config.compression.density = 1e-9;  // not looked at
    config.train.max_steps = 3;
    const auto plan = Plan(config);
    for (int64_t step = 0; step < 3; ++step) {
      EXPECT_EQ(plan->Up(kWeight, step), (TensorPlan{1.0, 32}));
      EXPECT_EQ(plan->Up(kBias, step), (TensorPlan{1.0, 32}));
      EXPECT_EQ(plan->Down(kWeight, step), (TensorPlan{1.0, 32}));
      EXPECT_TRUE(plan->DownIsExact(step));
    }
    EXPECT_EQ(plan->steady_from(), 0);
  }
}

TEST(RunPlanTest, MomentumLivesInOnePlace) {
  for (const char* policy : {"none", "lossless", "fixed", "warmup"}) {
    SCOPED_TRACE(policy);
    Config config = SmallConfig();
    config.compression.policy = policy;
    config.compression.compensation = 0.5;
    const auto plan = Plan(config);
    const bool shard = std::string(policy) == "none";
    EXPECT_EQ(plan->momentum_on_shard(), shard);
    EXPECT_EQ(plan->shard_optimizer().momentum, shard ? 0.9 : 0.0);
    EXPECT_EQ(plan->shard_optimizer().nesterov, shard);
    EXPECT_EQ(plan->compressor_options(kWeight).momentum, shard ? 0.0 : 0.9);
    EXPECT_EQ(plan->compressor_options(kWeight).form,
              shard ? MomentumForm::kNone : MomentumForm::kNesterov);
    EXPECT_EQ(plan->compressor_options(kWeight).compensation,
              shard ? 0.0 : 0.5);
    EXPECT_EQ(plan->compressor_options(kWeight).mask, !shard);
  }
  Config config = SmallConfig();
  config.optimizer.nesterov = false;
  EXPECT_EQ(Plan(config)->compressor_options(kWeight).form,
            MomentumForm::kPlain);
  config.optimizer.momentum = 0;
  EXPECT_EQ(Plan(config)->compressor_options(kWeight).form,
            MomentumForm::kNone);
}

TEST(RunPlanTest, FullCompensationNeedsNoMomentumBuffer) {
  Config config = FixedConfig();
  config.compression.compensation = 1;
  const auto weight = Plan(config)->compressor_options(kWeight);
  EXPECT_EQ(weight.form, MomentumForm::kNone);
  EXPECT_DOUBLE_EQ(weight.gain, 10);
  RV_EXPECT_OK(weight.Validate());
  // What is sent whole keeps its momentum, unmasked.
  const auto bias = Plan(config)->compressor_options(kBias);
  EXPECT_EQ(bias.form, MomentumForm::kNesterov);
  EXPECT_FALSE(bias.mask);
  EXPECT_EQ(bias.gain, 1);
  RV_EXPECT_OK(bias.Validate());
  // Where nothing is left behind it is momentum SGD, as without compression.
  config.compression.policy = "lossless";
  EXPECT_EQ(Plan(config)->compressor_options(kWeight).form,
            MomentumForm::kNesterov);
}

// Over small_every steps each small tensor is sent once, both ways, and each
// step sends its share of them.
TEST(RunPlanTest, SmallTensorsTakeTurns) {
  Config config = FixedConfig();
  config.model.name = "resnet20";
  config.compression.small_form = "round_robin";
  config.compression.small_bits = 4;
  config.cluster.shards = 2;
  const auto plan = Plan(config);
  const auto& parameters = plan->manifest().parameters;
  std::vector<int> turns(parameters.size(), 0);
  int64_t all = 0;
  std::vector<int64_t> sent(8, 0);
  for (int64_t step = 80; step < 88; ++step) {
    for (size_t t = 0; t < parameters.size(); ++t) {
      if (!parameters[t].is_small()) continue;
      const int tensor = static_cast<int>(t);
      const TensorPlan up = plan->Up(tensor, step);
      EXPECT_EQ(up.silent(), plan->Down(tensor, step).silent());
      if (step == 80) all += parameters[t].num_elements();
      if (up.silent()) continue;
      EXPECT_EQ(up, (TensorPlan{1.0, 4}));
      ++turns[t];
      sent[static_cast<size_t>(step % 8)] += parameters[t].num_elements();
    }
  }
  for (size_t t = 0; t < parameters.size(); ++t) {
    EXPECT_EQ(turns[t], parameters[t].is_small() ? 1 : 0);
  }
  // An eighth each, but for a tensor more or less on each shard.
  for (const int64_t elements : sent) {
    EXPECT_NEAR(static_cast<double>(elements), static_cast<double>(all) / 8,
                2 * 64);
  }
}

TEST(RunPlanTest, SmallTensorsMayBeSparse) {
  Config config = FixedConfig();
  config.cluster.workers = 4;
  config.compression.small_form = "sparse";
  config.compression.small_density = 0.02;
  const auto plan = Plan(config);
  EXPECT_EQ(plan->Up(kBias, 5), (TensorPlan{0.02, 8}));
  EXPECT_DOUBLE_EQ(plan->Down(kBias, 5).density, 0.04);
  EXPECT_TRUE(plan->compressor_options(kBias).mask);
}

TEST(RunPlanTest, LevelsAndRoundingReachEveryPlan) {
  Config config = FixedConfig();
  config.compression.value_bits = 2;
  config.compression.rounding = "stochastic";
  config.compression.levels = "steps";
  config.compression.down.value_bits = 3;
  const auto plan = Plan(config);
  for (const TensorPlan& p : {plan->Up(kWeight, 3), plan->Down(kWeight, 3),
                              plan->Up(kBias, 3), plan->Down(kBias, 3)}) {
    EXPECT_EQ(p.rounding, Rounding::kStochastic);
    EXPECT_EQ(p.level_fit, LevelFit::kSteps);
    RV_EXPECT_OK(p.Validate());
  }
  EXPECT_EQ(plan->Up(kWeight, 3).value_bits, 2);
  EXPECT_EQ(plan->Down(kWeight, 3).value_bits, 3);
}

// Whatever is configured, a plan is one that the compressors take.
TEST(RunPlanTest, EveryPlanIsValid) {
  for (const int64_t bits : {1, 2, 3, 4, 8, 16, 32}) {
    for (const double density : {0.05, 0.59, 0.61, 1.0}) {
      Config config = FixedConfig();
      config.compression.value_bits = bits;
      config.compression.down.value_bits = bits;
      config.compression.density = density;
      const auto plan = Plan(config);
      for (const int64_t step : {0, 318, 319}) {
        RV_EXPECT_OK(plan->Up(kWeight, step).Validate());
        RV_EXPECT_OK(plan->Down(kWeight, step).Validate());
      }
    }
  }
}

TEST(RunPlanTest, DensityMustFitTheRunUnlessAllowed) {
  Config config = FixedConfig();
  config.compression.density = 0.001;  // 320 steps
  EXPECT_THAT(
      RunPlan::Create(config),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("min_moves")));
  config.compression.min_moves = 0.25;
  RV_EXPECT_OK(RunPlan::Create(config));
  config.compression.min_moves = 0;
  RV_EXPECT_OK(RunPlan::Create(config));
}

TEST(RunPlanTest, LearningRateFollowsTheConfiguredLength) {
  Config config = FixedConfig();
  config.optimizer.schedule.warmup_epochs = 1;
  auto plan = Plan(config);
  EXPECT_NEAR(plan->LearningRate(0), 0.1 / 32, 1e-12);
  EXPECT_NEAR(plan->LearningRate(31), 0.1, 1e-12);
  EXPECT_NEAR(plan->LearningRate(32 + 144), 0.05, 1e-6);
  // The last step is one short of where the cosine ends.
  EXPECT_NEAR(plan->LearningRate(319),
              0.05 * (1 + std::cos(std::numbers::pi * 287 / 288)), 1e-12);
  // Half as long: the cosine ends there as well.
  config.train.max_steps = 200;
  plan = Plan(config);
  EXPECT_NEAR(plan->LearningRate(32 + 84), 0.05, 1e-6);
  EXPECT_NEAR(plan->LearningRate(199),
              0.05 * (1 + std::cos(std::numbers::pi * 167 / 168)), 1e-12);
}

TEST(RunPlanTest, WarmupsLongerThanTheRunAreCutOff) {
  Config config = SmallConfig();
  config.optimizer.schedule.warmup_epochs = 100;
  config.compression.warmup.epochs = 100;
  const auto plan = Plan(config);
  EXPECT_EQ(plan->steady_from(), 320);
  EXPECT_NEAR(plan->LearningRate(319), 0.1, 1e-12);
}

TEST(RunPlanTest, WeightDecayMaySpareSmallTensors) {
  Config config = SmallConfig();
  config.optimizer.weight_decay = 0.5;
  EXPECT_EQ(Plan(config)->WeightDecay(kWeight), 0.5);
  EXPECT_EQ(Plan(config)->WeightDecay(kBias), 0.5);
  config.optimizer.decay_small = false;
  EXPECT_EQ(Plan(config)->WeightDecay(kWeight), 0.5);
  EXPECT_EQ(Plan(config)->WeightDecay(kBias), 0.0);
}

TEST(RunPlanTest, LocalClipNormSharesTheBound) {
  Config config = SmallConfig();
  EXPECT_EQ(Plan(config)->LocalClipNorm(4), 0);
  config.optimizer.clip_norm = 3;
  EXPECT_EQ(Plan(config)->LocalClipNorm(1), 3);
  EXPECT_EQ(Plan(config)->LocalClipNorm(4), 1.5);
}

TEST(RunPlanTest, ADensityThatDoesNotFitTheRunNamesItsKey) {
  Config config = FixedConfig();
  config.compression.density = 0.03;  // 10 / 320 = 0.03125
  EXPECT_THAT(RunPlan::Create(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("compression.density: ")));
  config.compression.density = 0.032;
  RV_EXPECT_OK(RunPlan::Create(config));
}

TEST(RunPlanTest, WhatTheModelRefusesNamesItsKey) {
  Config config = FixedConfig();
  config.cluster.shards = 256;
  config.cluster.workers = 1;
  config.data.synthetic.height = 1;
  config.data.synthetic.width = 1;
  config.data.synthetic.classes = 2;
  config.model.hidden = {1};
  EXPECT_THAT(RunPlan::Create(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cluster.shards")));
  config = FixedConfig();
  config.compression.policy = "nonsense";
  EXPECT_THAT(RunPlan::Create(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("compression.policy: ")));
}

TEST(RunPlanTest, CarriesTheConfigIntoEveryPart) {
  Config config = SmallConfig();
  config.data.augment = "pad_crop_flip";
  config.data.pad = 3;
  config.train.seed = 11;
  config.data.synthetic.seed = 12;
  config.cluster.shards = 3;
  const auto plan = Plan(config);
  EXPECT_EQ(plan->loader_options().augment, Augment::kPadCropFlip);
  EXPECT_EQ(plan->loader_options().pad, 3);
  EXPECT_EQ(plan->loader_options().seed, 11u);
  EXPECT_EQ(plan->loader_options().batch_size, 64);
  EXPECT_EQ(plan->dataset_options().synthetic_seed, 12u);
  EXPECT_EQ(plan->dataset_info().train_size, 2048);
  EXPECT_EQ(plan->model_options().channels, 1);
  EXPECT_EQ(plan->model_options().height, 16);
  EXPECT_EQ(plan->partition().num_shards(), 3);
  EXPECT_EQ(plan->manifest().parameters.size(), 4u);  // two layers
  EXPECT_EQ(plan->manifest_hash().size(), 64u);
  config.model.hidden = {33};
  EXPECT_NE(Plan(config)->manifest_hash(), plan->manifest_hash());
}

TEST(RunPlanTest, EveryExampleHasAPlan) {
  for (const char* name :
       {"quickstart", "cifar10_resnet20", "cifar10_resnet20_dense",
        "synthetic_mlp", "three_machines"}) {
    SCOPED_TRACE(name);
    RV_ASSERT_OK_AND_ASSIGN(
        const Config config,
        LoadConfig(std::string(RIVULET_SOURCE_DIR "/configs/") + name + ".yaml",
                   {}));
    RV_EXPECT_OK(RunPlan::Create(config));
  }
}

}  // namespace
}  // namespace rivulet
