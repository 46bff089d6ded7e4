#include "server/aggregator.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using ::testing::ElementsAre;

SegmentUpdate Dense(uint32_t segment, std::vector<float> values) {
  SegmentUpdate update;
  update.segment = segment;
  update.mode = SegmentUpdate::Mode::kAddDense;
  update.values = std::move(values);
  return update;
}

SegmentUpdate Sparse(uint32_t segment, std::vector<uint32_t> positions,
                     std::vector<float> values) {
  SegmentUpdate update;
  update.segment = segment;
  update.positions = std::move(positions);
  update.values = std::move(values);
  return update;
}

TEST(AggregatorTest, WeighsRanksBySamplesAndPlacesSegments) {
  Aggregator aggregator(std::vector<int64_t>{2, 3});
  const std::vector<SegmentUpdate> a = {Dense(0, {1, 2}), Sparse(1, {2}, {8})};
  const std::vector<SegmentUpdate> b = {Sparse(1, {0, 2}, {4, 4})};
  EXPECT_THAT(aggregator.Mean({{.rank = 0, .samples = 3, .updates = a},
                               {.rank = 1, .samples = 1, .updates = b}}),
              ElementsAre(0.75f, 1.5f, 1.0f, 0.0f, 7.0f));
}

TEST(AggregatorTest, ForgetsTheStepBefore) {
  Aggregator aggregator(std::vector<int64_t>{2});
  const std::vector<SegmentUpdate> a = {Dense(0, {5, 6})};
  const std::vector<SegmentUpdate> none;
  aggregator.Mean({{.rank = 0, .samples = 1, .updates = a}});
  EXPECT_THAT(aggregator.Mean({{.rank = 0, .samples = 1, .updates = none}}),
              ElementsAre(0.0f, 0.0f));
}

TEST(AggregatorTest, IsZeroWithoutSamplesAndIgnoresRanksThatHaveNone) {
  Aggregator aggregator(std::vector<int64_t>{1});
  const std::vector<SegmentUpdate> a = {Dense(0, {5})};
  const std::vector<SegmentUpdate> b = {Dense(0, {7})};
  EXPECT_THAT(aggregator.Mean({{.rank = 0, .samples = 0, .updates = a}}),
              ElementsAre(0.0f));
  EXPECT_THAT(aggregator.Mean({{.rank = 0, .samples = 0, .updates = a},
                               {.rank = 1, .samples = 4, .updates = b}}),
              ElementsAre(7.0f));
}

TEST(AggregatorTest, GivesTheSameBitsForEveryOrderOfArrival) {
  constexpr int kRanks = 5;
  constexpr int64_t kSize = 1000;
  constexpr uint64_t kSeed = 20240501;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  RandomStream rng(kSeed, RandomPurpose::kTest);
  std::vector<std::vector<SegmentUpdate>> updates(kRanks);
  std::vector<Contribution> contributions;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> values(kSize);
    // Wide magnitudes: sums in another order differ for many elements.
    for (float& v : values) {
      v = static_cast<float>(rng.Normal() * (1 + rng.UniformInt(100000)));
    }
    updates[rank].push_back(Dense(0, std::move(values)));
    contributions.push_back(
        {.rank = rank, .samples = 3 + rank, .updates = updates[rank]});
  }
  Aggregator aggregator(std::vector<int64_t>{kSize});
  const auto first = aggregator.Mean(contributions);
  const std::vector<float> expected(first.begin(), first.end());
  for (int round = 0; round < 10; ++round) {
    rng.Shuffle(absl::MakeSpan(contributions));
    const auto mean = aggregator.Mean(contributions);
    EXPECT_TRUE(std::equal(mean.begin(), mean.end(), expected.begin()));
  }
}

}  // namespace
}  // namespace rivulet
