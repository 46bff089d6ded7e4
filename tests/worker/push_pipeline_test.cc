#include "worker/push_pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "compression/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/worker_test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::RecordedPush;
using ::rivulet::testing::RecordingStream;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

// A pipeline over recording streams.
class Rig {
 public:
  explicit Rig(const Config& config) : plan(PlanOf(config)) {
    std::vector<ShardStream*> shards;
    for (int s = 0; s < plan->partition().num_shards(); ++s) {
      streams.push_back(std::make_unique<RecordingStream>(s));
      shards.push_back(streams.back().get());
    }
    auto made = PushPipeline::Create(plan, {}, shards);
    RV_CHECK(made.ok()) << made.status().ToString();
    pipeline = *std::move(made);
  }

  Tensors Random(uint64_t seed, float scale) const {
    Tensors tensors;
    for (const TensorSpec& spec : plan->manifest().parameters) {
      RandomStream rng(seed, RandomPurpose::kTest, tensors.size());
      std::vector<float>& t = tensors.emplace_back();
      for (int64_t i = 0; i < spec.num_elements(); ++i) {
        t.push_back(scale * static_cast<float>(rng.Normal()));
      }
    }
    return tensors;
  }

  // Last layers first, as a backward pass gives them.
  absl::Status PushAll(int64_t step, const Tensors& gradients,
                       const Tensors& parameters, float scale = 1) {
    pipeline->BeginStep(step);
    buffers.resize(gradients.size());
    for (size_t i = gradients.size(); i-- > 0;) {
      buffers[i] =
          AlignedBuffer<float>(static_cast<int64_t>(gradients[i].size()));
      std::copy(gradients[i].begin(), gradients[i].end(), buffers[i].data());
      RV_RETURN_IF_ERROR(pipeline->OnGradient(static_cast<int>(i), &buffers[i],
                                              scale, parameters[i]));
    }
    return absl::OkStatus();
  }

  // What all shards together would add of push number `n`; checks checksums.
  Tensors Decode(size_t n) const {
    Tensors sums;
    for (const TensorSpec& spec : plan->manifest().parameters) {
      sums.emplace_back(spec.num_elements(), 0.0f);
    }
    for (size_t s = 0; s < streams.size(); ++s) {
      const RecordedPush& push = streams[s]->pushes.at(n);
      EXPECT_EQ(push.commit.crc32c(), Crc32c(push.bytes())) << "shard " << s;
      const auto segments = plan->partition().OfShard(static_cast<int>(s));
      auto updates =
          DecodeFrames(push.bytes(), plan->segment_table(static_cast<int>(s)));
      EXPECT_THAT(updates, IsOk());
      for (const SegmentUpdate& update : *updates) {
        const Segment& segment = segments[update.segment];
        update.AddTo(1,
                     absl::MakeSpan(sums[static_cast<size_t>(segment.tensor)])
                         .subspan(static_cast<size_t>(segment.begin),
                                  static_cast<size_t>(segment.size())));
      }
    }
    return sums;
  }

  Tensors State(bool residual) {
    Tensors state;
    for (size_t i = 0; i < plan->manifest().parameters.size(); ++i) {
      GradientCompressor* const c = pipeline->compressor(static_cast<int>(i));
      const auto values = residual ? c->residual() : c->momentum();
      state.emplace_back(values.begin(), values.end());
    }
    return state;
  }

  std::vector<SelectorState> Selectors() {
    std::vector<SelectorState> states;
    for (size_t i = 0; i < plan->manifest().parameters.size(); ++i) {
      states.push_back(
          pipeline->compressor(static_cast<int>(i))->selector_state());
    }
    return states;
  }

  std::vector<AlignedBuffer<float>> buffers;  // gradients of the step
  std::shared_ptr<const RunPlan> plan;
  std::vector<std::unique_ptr<RecordingStream>> streams;
  std::unique_ptr<PushPipeline> pipeline;
};

TEST(PushPipelineTest, SendsRawGradientsPlusDecayWithPolicyNone) {
  Rig rig(SmallConfig("none", 1, 3));
  const Tensors g = rig.Random(1, 1.0f);
  const Tensors p = rig.Random(2, 0.1f);
  RV_ASSERT_OK(rig.PushAll(0, g, p));
  rig.pipeline->Commit(16, 7);
  const Tensors sent = rig.Decode(0);
  for (size_t t = 0; t < g.size(); ++t) {
    const auto decay =
        static_cast<float>(rig.plan->WeightDecay(static_cast<int>(t)));
    for (size_t i = 0; i < g[t].size(); ++i) {
      ASSERT_EQ(sent[t][i], g[t][i] + decay * p[t][i]) << t << " " << i;
    }
  }
  for (const auto& stream : rig.streams) {
    EXPECT_EQ(stream->pushes[0].commit.samples(), 16u);
    EXPECT_EQ(stream->pushes[0].commit.schedule_seq(), 7u);
    EXPECT_FALSE(stream->pushes[0].commit.voided());
  }
  EXPECT_EQ(rig.pipeline->compressor(0), nullptr);
}

TEST(PushPipelineTest, SplitsATensorOverItsShards) {
  Rig rig(SmallConfig("none", 1, 3));
  size_t split = 0;
  for (size_t t = 0; t < rig.plan->manifest().parameters.size(); ++t) {
    if (rig.plan->partition().OfTensor(static_cast<int>(t)).size() > 1) ++split;
  }
  ASSERT_GT(split, 0u) << "the test's model has no tensor large enough";
  const Tensors g = rig.Random(3, 1.0f);
  const Tensors zero = rig.Random(3, 0.0f);
  RV_ASSERT_OK(rig.PushAll(0, g, zero));
  rig.pipeline->Commit(16, 1);
  EXPECT_EQ(rig.Decode(0), g);
}

TEST(PushPipelineTest, ScalesTheGradientButNotTheDecay) {
  Rig rig(SmallConfig("none"));
  const Tensors g = rig.Random(1, 1.0f);
  const Tensors p = rig.Random(2, 1.0f);
  RV_ASSERT_OK(rig.PushAll(0, g, p, 0.5f));
  rig.pipeline->Commit(16, 1);
  const Tensors sent = rig.Decode(0);
  const auto decay = static_cast<float>(rig.plan->WeightDecay(0));
  ASSERT_GT(decay, 0);
  EXPECT_EQ(sent[0][5], 0.5f * g[0][5] + decay * p[0][5]);
}

TEST(PushPipelineTest, SendsEverythingWithPolicyLossless) {
  Config config = SmallConfig("lossless");
  config.optimizer.weight_decay = 0;
  Rig rig(config);
  const Tensors p = rig.Random(2, 1.0f);
  const auto m = static_cast<float>(config.optimizer.momentum);
  Tensors u = rig.Random(1, 0.0f);
  for (int64_t step = 0; step < 3; ++step) {
    const Tensors g = rig.Random(10 + static_cast<uint64_t>(step), 1.0f);
    RV_ASSERT_OK(rig.PushAll(step, g, p));
    rig.pipeline->Commit(16, 1);
    const Tensors sent = rig.Decode(static_cast<size_t>(step));
    for (size_t t = 0; t < g.size(); ++t) {
      for (size_t i = 0; i < g[t].size(); ++i) {
        // Nesterov: u <- m (u + g), and u + g is sent.
        u[t][i] = m * (u[t][i] + g[t][i]);
        ASSERT_NEAR(sent[t][i], u[t][i] + g[t][i], 1e-5) << step;
      }
    }
    for (const auto& residual : rig.State(true)) {
      EXPECT_THAT(residual, Each(0.0f));
    }
  }
}

TEST(PushPipelineTest, SparsePushPlusResidualIsTheInput) {
  Config config = SmallConfig("fixed", 1, 3);
  config.optimizer.momentum = 0;
  config.optimizer.nesterov = false;
  config.optimizer.weight_decay = 0;
  Rig rig(config);
  const Tensors p = rig.Random(2, 1.0f);
  Tensors v = rig.Random(1, 0.0f);
  size_t unsent = 0;
  for (int64_t step = 0; step < 4; ++step) {
    const Tensors g = rig.Random(20 + static_cast<uint64_t>(step), 1.0f);
    RV_ASSERT_OK(rig.PushAll(step, g, p));
    rig.pipeline->Commit(16, 1);
    const Tensors sent = rig.Decode(static_cast<size_t>(step));
    const Tensors residual = rig.State(true);
    for (size_t t = 0; t < g.size(); ++t) {
      for (size_t i = 0; i < g[t].size(); ++i) {
        const float s = v[t][i] + g[t][i];
        // What is kept is exactly what the receivers did not get.
        ASSERT_EQ(residual[t][i], s - sent[t][i]) << t << " " << i;
        if (sent[t][i] == 0) ++unsent;
        v[t][i] = residual[t][i];
      }
    }
  }
  EXPECT_GT(unsent, 1000u);
}

TEST(PushPipelineTest, VoidRestoresTheStateBitForBit) {
  Rig rig(SmallConfig("fixed"));
  const Tensors p = rig.Random(2, 1.0f);
  RV_ASSERT_OK(rig.PushAll(0, rig.Random(3, 1.0f), p));
  rig.pipeline->Commit(16, 1);
  const Tensors u = rig.State(false);
  const Tensors v = rig.State(true);
  const std::vector<SelectorState> selectors = rig.Selectors();

  Tensors g = rig.Random(4, 1.0f);
  g[0][3] = std::numeric_limits<float>::quiet_NaN();  // reached last
  EXPECT_THAT(
      rig.PushAll(1, g, p),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("step 1"),
                     HasSubstr(rig.plan->manifest().parameters[0].name))));
  rig.pipeline->Void(5);
  EXPECT_EQ(rig.State(false), u);
  EXPECT_EQ(rig.State(true), v);
  EXPECT_EQ(rig.Selectors(), selectors);
  for (const auto& stream : rig.streams) {
    const RecordedPush& push = stream->pushes.at(1);
    EXPECT_TRUE(push.commit.voided());
    EXPECT_EQ(push.commit.schedule_seq(), 5u);
    EXPECT_EQ(push.commit.crc32c(), Crc32c(push.bytes()));
  }

  // As if the step had not been: a twin that never saw it sends the same.
  Rig twin(SmallConfig("fixed"));
  RV_ASSERT_OK(twin.PushAll(0, rig.Random(3, 1.0f), p));
  twin.pipeline->Commit(16, 1);
  const Tensors next = rig.Random(6, 1.0f);
  RV_ASSERT_OK(rig.PushAll(2, next, p));
  rig.pipeline->Commit(16, 1);
  RV_ASSERT_OK(twin.PushAll(2, next, p));
  twin.pipeline->Commit(16, 1);
  for (size_t s = 0; s < rig.streams.size(); ++s) {
    EXPECT_EQ(rig.streams[s]->pushes[2].bytes(),
              twin.streams[s]->pushes[1].bytes());
  }
}

TEST(PushPipelineTest, RefusesInfinityWithPolicyNone) {
  Rig rig(SmallConfig("none"));
  Tensors g = rig.Random(4, 1.0f);
  g[1][0] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(rig.PushAll(9, g, rig.Random(2, 1.0f)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(rig.plan->manifest().parameters[1].name)));
  rig.pipeline->Void(1);
}

TEST(PushPipelineTest, CutsAPushIntoBuckets) {
  Config config = SmallConfig("none", 1, 1);
  config.compression.bucket_bytes = 4096;
  Rig rig(config);
  const Tensors g = rig.Random(5, 1.0f);
  const Tensors zero = rig.Random(5, 0.0f);
  RV_ASSERT_OK(rig.PushAll(0, g, zero));
  rig.pipeline->Commit(16, 1);
  const RecordedPush& push = rig.streams[0]->pushes[0];
  ASSERT_GT(push.pieces.size(), 1u);
  for (size_t i = 0; i + 1 < push.pieces.size(); ++i) {
    EXPECT_GE(static_cast<int64_t>(push.pieces[i].size()), 4096);
  }
  EXPECT_EQ(rig.Decode(0), g);

  config.compression.bucket_bytes = 1 << 20;
  Rig whole(config);
  RV_ASSERT_OK(whole.PushAll(0, g, zero));
  whole.pipeline->Commit(16, 1);
  EXPECT_EQ(whole.streams[0]->pushes[0].pieces.size(), 1u);
}

TEST(PushPipelineTest, CommitsAnEmptyPushForAnEmptySlice) {
  Rig rig(SmallConfig("fixed"));
  rig.pipeline->BeginStep(0);
  rig.pipeline->Commit(0, 1);
  for (const auto& stream : rig.streams) {
    EXPECT_EQ(stream->pushes[0].bytes(), "");
    EXPECT_EQ(stream->pushes[0].commit.samples(), 0u);
    EXPECT_EQ(stream->pushes[0].commit.crc32c(), 0u);
  }
  for (const auto& u : rig.State(false)) EXPECT_THAT(u, Each(0.0f));
}

}  // namespace
}  // namespace rivulet
