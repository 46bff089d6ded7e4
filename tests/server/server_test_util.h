// What the server's tests share: small jobs, and pushes made by hand.

#ifndef RIVULET_TESTS_SERVER_SERVER_TEST_UTIL_H_
#define RIVULET_TESTS_SERVER_SERVER_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/daemon/config.h"
#include "common/daemon/run_plan.h"
#include "compression/compressed_tensor.h"
#include "compression/frame.h"
#include "proto/exchange.pb.h"
#include "server/shard_core.h"

namespace rivulet::testing {

// A two-layer network on 8x8 images; 8 steps an epoch, 80 steps.
inline Config SmallConfig(const std::string& policy, int workers = 2,
                          int shards = 1) {
  Config config;
  config.model.name = "mlp";
  config.model.hidden = {40};
  config.data.name = "synthetic";
  config.data.augment = "none";
  config.data.synthetic = {.train = 128,
                           .test = 30,
                           .classes = 4,
                           .channels = 1,
                           .height = 8,
                           .width = 8,
                           .seed = 1};
  config.train.batch_size = 16;
  config.train.epochs = 10;
  config.train.evaluate_every_epochs = 0;
  config.optimizer.learning_rate = 0.05;
  config.compression.policy = policy;
  config.compression.density = 0.25;
  config.cluster.workers = workers;
  config.cluster.shards = shards;
  return config;
}

inline std::shared_ptr<const RunPlan> PlanOf(const Config& config) {
  auto plan = RunPlan::Create(config);
  RV_CHECK(plan.ok()) << plan.status().ToString();
  return *std::move(plan);
}

inline std::unique_ptr<ShardCore> CoreOf(std::shared_ptr<const RunPlan> plan,
                                         int shard = 0) {
  auto core = ShardCore::Create(std::move(plan), shard);
  RV_CHECK(core.ok()) << core.status().ToString();
  return *std::move(core);
}

// One rank's push: what it sends, and the same as a dense vector for oracles.
struct TestPush {
  std::string bytes;
  v1::Commit commit;
  std::vector<std::vector<float>> dense;  // by segment
};

inline v1::Commit CommitOf(const std::string& bytes, uint32_t samples,
                           uint64_t schedule_seq = 0) {
  v1::Commit commit;
  commit.set_samples(samples);
  commit.set_schedule_seq(schedule_seq);
  commit.set_crc32c(Crc32c(bytes));
  return commit;
}

// Raw fp32 values of every segment of the shard, or, with `density` below 1,
// of random positions. Values are a function of (seed, step, rank).
inline TestPush MakePush(const ShardCore& core, int rank, int64_t step,
                         uint32_t samples, double density = 1.0,
                         uint64_t seed = 7) {
  TestPush push;
  FrameEncoder encoder(&core.plan().segment_table(core.shard()));
  RandomStream rng(
      seed, RandomPurpose::kTest,
      static_cast<uint64_t>(step) * 1000 + static_cast<uint64_t>(rank));
  for (const Segment& s : core.segments()) {
    CompressedTensor tensor;
    tensor.size = s.size();
    tensor.dense = density >= 1.0;
    std::vector<float> dense(static_cast<size_t>(s.size()), 0.0f);
    for (size_t i = 0; i < dense.size(); ++i) {
      if (!tensor.dense && rng.UniformDouble() >= density) continue;
      dense[i] = static_cast<float>(rng.Normal());
      if (!tensor.dense) tensor.positions.push_back(static_cast<uint32_t>(i));
      tensor.values.push_back(dense[i]);
    }
    encoder.Add(static_cast<uint32_t>(s.local), tensor, 0, s.size());
    push.dense.push_back(std::move(dense));
  }
  push.bytes = encoder.Finish();
  push.commit = CommitOf(push.bytes, samples);
  return push;
}

// All segments' w or v̂ end to end.
inline std::vector<float> Weights(const ShardCore& core) {
  std::vector<float> all;
  for (const Segment& s : core.segments()) {
    const auto part = core.weights(s.local);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
inline std::vector<float> View(const ShardCore& core) {
  std::vector<float> all;
  for (const Segment& s : core.segments()) {
    const auto part = core.view(s.local);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_SERVER_SERVER_TEST_UTIL_H_
