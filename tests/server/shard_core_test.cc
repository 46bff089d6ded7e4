#include "server/shard_core.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::CommitOf;
using ::rivulet::testing::CoreOf;
using ::rivulet::testing::IsOk;
using ::rivulet::testing::MakePush;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TestPush;
using ::rivulet::testing::View;
using ::rivulet::testing::Weights;
using ::testing::HasSubstr;

absl::StatusOr<PushResult> Submit(ShardCore& core, int rank,
                                  const TestPush& push) {
  return core.SubmitPush(rank, 0, core.version(), push.bytes, push.commit);
}

// One whole step of pushes that are functions of (step, rank).
std::shared_ptr<const ShardUpdate> DoStep(ShardCore& core,
                                          const std::vector<int>& order,
                                          double density = 1.0) {
  for (int rank : order) {
    const TestPush push = MakePush(core, rank, core.version(),
                                   static_cast<uint32_t>(rank + 3), density);
    auto result = Submit(core, rank, push);
    RV_CHECK(result.ok()) << result.status().ToString();
  }
  RV_CHECK(core.Ready());
  auto update = core.MakeUpdate(0);
  RV_CHECK(update.ok()) << update.status().ToString();
  return *update;
}

// Decoded pushes of one step, added in double: sum of samples / total * value.
std::vector<double> MeanGradient(const std::vector<TestPush>& pushes) {
  double total = 0;
  for (const TestPush& push : pushes) total += push.commit.samples();
  std::vector<double> mean;
  for (const TestPush& push : pushes) {
    size_t at = 0;
    for (const std::vector<float>& segment : push.dense) {
      for (float value : segment) {
        if (mean.size() <= at) mean.push_back(0);
        mean[at++] += push.commit.samples() / total * value;
      }
    }
  }
  return mean;
}

void ExpectNear(const std::vector<float>& actual,
                const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
  }
}

TEST(ShardCoreTest, WithDensePushesEqualsMomentumSgd) {
  for (const bool nesterov : {false, true}) {
    SCOPED_TRACE(absl::StrCat("nesterov ", nesterov));
    Config config = SmallConfig("none", 3);
    config.optimizer.nesterov = nesterov;
    auto core = CoreOf(PlanOf(config));
    const std::vector<float> start = Weights(*core);
    std::vector<double> weights(start.begin(), start.end());
    std::vector<double> momentum(weights.size(), 0.0);
    for (int64_t step = 0; step < 6; ++step) {
      std::vector<TestPush> pushes;
      for (int rank = 0; rank < 3; ++rank) {
        pushes.push_back(
            MakePush(*core, rank, step, static_cast<uint32_t>(rank + 3)));
        RV_ASSERT_OK(Submit(*core, rank, pushes.back()).status());
      }
      const std::vector<double> gradient = MeanGradient(pushes);
      const double rate = core->plan().LearningRate(step);
      for (size_t i = 0; i < weights.size(); ++i) {
        momentum[i] = 0.9 * momentum[i] + gradient[i];
        weights[i] -=
            rate * (nesterov ? gradient[i] + 0.9 * momentum[i] : momentum[i]);
      }
      RV_ASSERT_OK(core->MakeUpdate(0).status());
      // fp32 against double: some roundings of 2^-24 a step on values of a few.
      ExpectNear(Weights(*core), weights, 2e-6);
    }
  }
}

TEST(ShardCoreTest, WithCompressedPushesIsPlainSgdOfTheDecodedSums) {
  for (const double density : {1.0, 0.1}) {
    SCOPED_TRACE(absl::StrCat("density ", density));
    auto core = CoreOf(PlanOf(SmallConfig("fixed", 2)));
    const std::vector<float> start = Weights(*core);
    std::vector<double> weights(start.begin(), start.end());
    for (int64_t step = 0; step < 6; ++step) {
      std::vector<TestPush> pushes;
      for (int rank = 0; rank < 2; ++rank) {
        pushes.push_back(MakePush(*core, rank, step,
                                  static_cast<uint32_t>(rank + 3), density));
        RV_ASSERT_OK(Submit(*core, rank, pushes.back()).status());
      }
      const std::vector<double> gradient = MeanGradient(pushes);
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i] -= core->plan().LearningRate(step) * gradient[i];
      }
      RV_ASSERT_OK(core->MakeUpdate(0).status());
      ExpectNear(Weights(*core), weights, 2e-6);
    }
  }
}

TEST(ShardCoreTest, GivesTheSameBytesForEveryOrderOfArrival) {
  for (const std::string policy : {"none", "fixed"}) {
    SCOPED_TRACE(policy);
    const auto plan = PlanOf(SmallConfig(policy, 4));
    auto first = CoreOf(plan);
    auto second = CoreOf(plan);
    std::vector<int> order = {0, 1, 2, 3};
    RandomStream rng(11, RandomPurpose::kTest);
    for (int step = 0; step < 8; ++step) {
      const auto expected = DoStep(*first, {0, 1, 2, 3}, 0.3);
      rng.Shuffle(absl::MakeSpan(order));
      const auto actual = DoStep(*second, order, 0.3);
      EXPECT_EQ(actual->bytes, expected->bytes);
      EXPECT_EQ(actual->end.SerializeAsString(),
                expected->end.SerializeAsString());
    }
    EXPECT_EQ(Weights(*first), Weights(*second));
  }
}

TEST(ShardCoreTest, WorkersThatApplyTheUpdatesHoldTheView) {
  Config config = SmallConfig("fixed", 2);
  config.train.max_steps = 41;
  const auto plan = PlanOf(config);
  auto core = CoreOf(plan);
  std::vector<int64_t> sizes;
  for (const Segment& s : core->segments()) sizes.push_back(s.size());
  std::vector<float> worker = View(*core);
  EXPECT_EQ(worker, Weights(*core));
  while (core->version() < plan->total_steps()) {
    const auto update = DoStep(*core, {0, 1}, 0.2);
    EXPECT_EQ(update->end.version(), static_cast<uint64_t>(core->version()));
    RV_ASSERT_OK_AND_ASSIGN(
        auto changes,
        DecodeFrames(update->bytes, core->plan().segment_table(core->shard())));
    for (const SegmentUpdate& change : changes) {
      const int64_t offset = std::accumulate(
          sizes.begin(), sizes.begin() + change.segment, int64_t{0});
      change.ApplyTo(absl::MakeSpan(
          worker.data() + offset, static_cast<size_t>(sizes[change.segment])));
    }
    ASSERT_EQ(worker, View(*core)) << "step " << update->step;
    if (core->version() < plan->total_steps()) {
      EXPECT_NE(worker, Weights(*core)) << "a compressed change is not exact";
    }
  }
  EXPECT_EQ(worker, Weights(*core)) << "the last update is exact";
}

TEST(ShardCoreTest, BeginsWithTheManifestsInitialWeightsOnEveryShard) {
  const auto plan = PlanOf(SmallConfig("fixed", 2, 3));
  for (int shard = 0; shard < 3; ++shard) {
    auto core = CoreOf(plan, shard);
    for (const Segment& s : core->segments()) {
      const TensorSpec& spec = plan->manifest().parameters[s.tensor];
      std::vector<float> whole(static_cast<size_t>(spec.num_elements()));
      InitializeTensor(spec, 1, s.tensor, absl::MakeSpan(whole));
      const auto part = core->weights(s.local);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + s.begin))
          << spec.name;
    }
  }
}

TEST(ShardCoreTest, AnswersARepeatedPushFromTheLastUpdate) {
  auto core = CoreOf(PlanOf(SmallConfig("fixed", 2)));
  const TestPush a = MakePush(*core, 0, 0, 3);
  const TestPush b = MakePush(*core, 1, 0, 4);
  ASSERT_EQ(*Submit(*core, 0, a), PushResult::kAccepted);
  ASSERT_EQ(*Submit(*core, 0, a), PushResult::kRepeated);
  EXPECT_FALSE(core->Ready()) << "a repetition must not count twice";
  ASSERT_EQ(*Submit(*core, 1, b), PushResult::kAccepted);
  RV_ASSERT_OK_AND_ASSIGN(auto update, core->MakeUpdate(0));
  const std::vector<float> weights = Weights(*core);

  auto again = core->SubmitPush(0, 0, 0, a.bytes, a.commit);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(*again, PushResult::kRepeated);
  EXPECT_EQ(core->FindUpdate(0), update);
  EXPECT_EQ(core->FindUpdate(1), nullptr);
  EXPECT_EQ(Weights(*core), weights);
  EXPECT_FALSE(core->Ready());
}

TEST(ShardCoreTest, RefusesAnotherPushOfTheSameName) {
  auto core = CoreOf(PlanOf(SmallConfig("fixed", 2)));
  RV_ASSERT_OK(Submit(*core, 0, MakePush(*core, 0, 0, 3)).status());
  const TestPush other = MakePush(*core, 0, 0, 3, 1.0, /*seed=*/8);
  EXPECT_THAT(Submit(*core, 0, other).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("push of worker 0 for step 0 to shard 0")));
  RV_ASSERT_OK(Submit(*core, 1, MakePush(*core, 1, 0, 3)).status());
  RV_ASSERT_OK(core->MakeUpdate(0).status());
  EXPECT_THAT(core->SubmitPush(0, 0, 0, other.bytes, other.commit).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Whatever is refused must leave no trace: the step goes on as if it had not
// come.
class ShardCoreRefusalTest : public ::testing::Test {
 protected:
  ShardCoreRefusalTest()
      : core_(CoreOf(PlanOf(SmallConfig("fixed", 2)))),
        clean_(CoreOf(PlanOf(SmallConfig("fixed", 2)))) {}

  void ExpectRefused(int rank, int64_t step, const std::string& bytes,
                     const v1::Commit& commit, absl::StatusCode code,
                     const std::string& part) {
    EXPECT_THAT(core_->SubmitPush(rank, 0, step, bytes, commit).status(),
                StatusIs(code, HasSubstr(part)));
    EXPECT_FALSE(core_->Ready());
  }

  ~ShardCoreRefusalTest() override {
    EXPECT_EQ(DoStep(*core_, {0, 1})->bytes, DoStep(*clean_, {0, 1})->bytes);
    EXPECT_EQ(Weights(*core_), Weights(*clean_));
  }

  std::unique_ptr<ShardCore> core_;
  std::unique_ptr<ShardCore> clean_;
};

TEST_F(ShardCoreRefusalTest, OfAWrongStep) {
  const TestPush push = MakePush(*core_, 0, 1, 3);
  ExpectRefused(0, 1, push.bytes, push.commit,
                absl::StatusCode::kFailedPrecondition, "collects step 0");
}

TEST_F(ShardCoreRefusalTest, OfAWrongChecksum) {
  TestPush push = MakePush(*core_, 0, 0, 3);
  push.commit.set_crc32c(push.commit.crc32c() ^ 1);
  ExpectRefused(0, 0, push.bytes, push.commit, absl::StatusCode::kDataLoss,
                "CRC32C");
}

TEST_F(ShardCoreRefusalTest, OfAFrameWithAnyByteChanged) {
  const TestPush push = MakePush(*core_, 0, 0, 3, 0.01);
  for (size_t i = 0; i < push.bytes.size(); i += 7) {
    std::string bytes = push.bytes;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x40);
    // The commit is right for these bytes: the frame's own check must find it.
    EXPECT_FALSE(
        core_->SubmitPush(0, 0, 0, bytes, CommitOf(bytes, 3)).status().ok())
        << "byte " << i;
  }
  ExpectRefused(0, 0, push.bytes.substr(0, push.bytes.size() - 1),
                CommitOf(push.bytes.substr(0, push.bytes.size() - 1), 3),
                absl::StatusCode::kDataLoss, "worker 0");
}

TEST_F(ShardCoreRefusalTest, OfFramesThatReplaceOrRepeatASegment) {
  const auto segment = core_->segments()[0];
  const std::vector<float> values(static_cast<size_t>(segment.size()), 1.0f);
  FrameEncoder exact;
  exact.AddExact(0, values);
  const std::string replaces = exact.Finish();
  ExpectRefused(0, 0, replaces, CommitOf(replaces, 3),
                absl::StatusCode::kInvalidArgument, "replaces");
  const TestPush push = MakePush(*core_, 0, 0, 3);
  const std::string twice = push.bytes + push.bytes;
  ExpectRefused(0, 0, twice, CommitOf(twice, 3),
                absl::StatusCode::kInvalidArgument, "twice");
}

TEST_F(ShardCoreRefusalTest, OfASegmentOfAnotherShard) {
  FrameEncoder encoder;
  CompressedTensor tensor;
  tensor.size = 4;
  tensor.positions = {1};
  tensor.values = {1.0f};
  encoder.Add(1000, tensor, 0, 4);
  const std::string bytes = encoder.Finish();
  ExpectRefused(0, 0, bytes, CommitOf(bytes, 3), absl::StatusCode::kOutOfRange,
                "worker 0");
}

TEST_F(ShardCoreRefusalTest, OfSamplesThatCannotBe) {
  const TestPush push = MakePush(*core_, 0, 0, 3);
  ExpectRefused(0, 0, push.bytes, CommitOf(push.bytes, 17),
                absl::StatusCode::kInvalidArgument, "train.batch_size is 16");
  ExpectRefused(0, 0, push.bytes, CommitOf(push.bytes, 0),
                absl::StatusCode::kInvalidArgument, "no samples");
}

TEST_F(ShardCoreRefusalTest, OfARankOutsideTheView) {
  const TestPush push = MakePush(*core_, 0, 0, 3);
  ExpectRefused(2, 0, push.bytes, push.commit, absl::StatusCode::kOutOfRange,
                "worker 2");
}

TEST(ShardCoreTest, FencesSupersededIncarnations) {
  auto core = CoreOf(PlanOf(SmallConfig("fixed", 2)));
  v1::View view;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    view.add_members()->set_rank(rank);
    view.mutable_members(static_cast<int>(rank))->set_incarnation(10 + rank);
  }
  RV_ASSERT_OK(core->SetView(view));
  const TestPush push = MakePush(*core, 1, 0, 3);
  EXPECT_THAT(core->SubmitPush(1, 10, 0, push.bytes, push.commit).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("superseded")));
  EXPECT_THAT(core->Admit(1, 12), IsOk());
  EXPECT_THAT(core->Admit(1, 11), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(core->SubmitPush(1, 12, 0, push.bytes, push.commit), IsOk());
  EXPECT_THAT(core->SetView(view),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ShardCoreTest, RefusesAViewThatIsNotTheConfigs) {
  auto core = CoreOf(PlanOf(SmallConfig("fixed", 2)));
  v1::View view;
  view.add_members()->set_rank(0);
  EXPECT_THAT(core->SetView(view), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("cluster.workers is 2")));
  view.add_members()->set_rank(3);
  EXPECT_THAT(core->SetView(view),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ShardCoreTest, AVoidedPushDropsOutOfSumDivisorAndContributors) {
  auto core = CoreOf(PlanOf(SmallConfig("fixed", 3)));
  auto pair = CoreOf(PlanOf(SmallConfig("fixed", 3)));
  v1::Commit voided;
  voided.set_voided(true);
  voided.set_samples(5);
  RV_ASSERT_OK(core->SubmitPush(1, 0, 0, "half a frame", voided).status());
  RV_ASSERT_OK(Submit(*core, 0, MakePush(*core, 0, 0, 4)).status());
  RV_ASSERT_OK(Submit(*core, 2, MakePush(*core, 2, 0, 6)).status());
  RV_ASSERT_OK_AND_ASSIGN(auto update, core->MakeUpdate(0));
  ASSERT_EQ(update->end.contributors_size(), 2);
  EXPECT_EQ(update->end.contributors(0).rank(), 0u);
  EXPECT_EQ(update->end.contributors(0).weight(), 4u);
  EXPECT_EQ(update->end.contributors(1).rank(), 2u);
  EXPECT_EQ(update->end.contributors(1).push_step(), 0u);
  EXPECT_FALSE(update->end.none());

  // The same step when rank 1 has an empty slice: the weights must be equal.
  RV_ASSERT_OK(Submit(*pair, 0, MakePush(*pair, 0, 0, 4)).status());
  RV_ASSERT_OK(pair->SubmitPush(1, 0, 0, "", CommitOf("", 0)).status());
  RV_ASSERT_OK(Submit(*pair, 2, MakePush(*pair, 2, 0, 6)).status());
  RV_ASSERT_OK_AND_ASSIGN(auto all, pair->MakeUpdate(0));
  EXPECT_EQ(all->end.contributors_size(), 0) << "nobody voided: all counted";
  EXPECT_EQ(Weights(*core), Weights(*pair));
}

TEST(ShardCoreTest, WhenEveryRankVoidsNothingMovesButTheVersion) {
  auto core = CoreOf(PlanOf(SmallConfig("none", 2)));
  DoStep(*core, {0, 1});  // so that there is momentum, which must not move w
  const std::vector<float> weights = Weights(*core);
  v1::Commit voided;
  voided.set_voided(true);
  RV_ASSERT_OK(core->SubmitPush(0, 0, 1, "", voided).status());
  RV_ASSERT_OK(core->SubmitPush(1, 0, 1, "", voided).status());
  RV_ASSERT_OK_AND_ASSIGN(auto update, core->MakeUpdate(0));
  EXPECT_TRUE(update->end.none());
  EXPECT_EQ(update->end.contributors_size(), 0);
  EXPECT_EQ(update->end.version(), 2u);
  EXPECT_EQ(Weights(*core), weights);
}

TEST(ShardCoreTest, AStateThatWasSavedGoesOnInTheSameBits) {
  for (const std::string policy : {"none", "fixed", "warmup"}) {
    SCOPED_TRACE(policy);
    const auto plan = PlanOf(SmallConfig(policy, 2, 2));
    auto undisturbed = CoreOf(plan, 1);
    for (int i = 0; i < 12; ++i) DoStep(*undisturbed, {0, 1}, 0.3);
    const TensorFile saved = undisturbed->Save();
    auto resumed = CoreOf(plan, 1);
    RV_ASSERT_OK(resumed->Load(saved));
    EXPECT_EQ(resumed->version(), 12);
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(DoStep(*resumed, {1, 0}, 0.3)->bytes,
                DoStep(*undisturbed, {0, 1}, 0.3)->bytes);
    }
    EXPECT_EQ(Weights(*resumed), Weights(*undisturbed));
    EXPECT_EQ(View(*resumed), View(*undisturbed));
  }
}

TEST(ShardCoreTest, RefusesAForeignStateAndKeepsItsOwn) {
  const auto plan = PlanOf(SmallConfig("fixed", 2, 2));
  auto core = CoreOf(plan, 0);
  DoStep(*core, {0, 1});
  const std::vector<float> weights = Weights(*core);
  EXPECT_THAT(core->Load(CoreOf(plan, 1)->Save()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("checkpoint of shard 0")));
  TensorFile cut = CoreOf(plan, 0)->Save();
  cut.tensors.back().values.pop_back();
  EXPECT_THAT(core->Load(cut), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("this shard owns")));
  TensorFile no_version = CoreOf(plan, 0)->Save();
  no_version.metadata.erase("version");
  EXPECT_THAT(core->Load(no_version), StatusIs(absl::StatusCode::kDataLoss));
  TensorFile no_number = core->Save();
  for (auto& [key, value] : no_number.metadata) {
    if (key.rfind("selector.", 0) == 0) value = "2143289344 3";  // NaN
  }
  EXPECT_THAT(
      core->Load(no_number),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no selector's state")));
  EXPECT_EQ(Weights(*core), weights);
  EXPECT_EQ(core->version(), 1);
}

TEST(ShardCoreTest, SaysWhichTensorIsNoLongerFinite) {
  Config config = SmallConfig("none", 1);
  config.optimizer.learning_rate = 10;
  config.optimizer.schedule.kind = "constant";
  auto core = CoreOf(PlanOf(config));
  TestPush push = MakePush(*core, 0, 0, 16);
  FrameEncoder encoder;
  for (const Segment& s : core->segments()) {
    CompressedTensor tensor;
    tensor.size = s.size();
    tensor.dense = true;
    tensor.values.assign(static_cast<size_t>(s.size()),
                         std::numeric_limits<float>::max());
    encoder.Add(static_cast<uint32_t>(s.local), tensor, 0, s.size());
  }
  const std::string bytes = encoder.Finish();
  RV_ASSERT_OK(core->SubmitPush(0, 0, 0, bytes, CommitOf(bytes, 16)).status());
  EXPECT_THAT(core->MakeUpdate(0).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(core->plan().manifest().parameters[0].name)));
}

TEST(ShardCoreTest, RefusesAShardThatDoesNotExist) {
  EXPECT_THAT(ShardCore::Create(PlanOf(SmallConfig("fixed", 2, 2)), 2).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cluster.shards is 2")));
}

}  // namespace
}  // namespace rivulet
