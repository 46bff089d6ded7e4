#include "models/manifest/partition.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

Manifest OfSizes(const std::vector<int64_t>& sizes) {
  Manifest manifest;
  manifest.model = "synthetic";
  for (const int64_t size : sizes) {
    manifest.parameters.push_back(
        {.name = absl::StrCat("t", manifest.parameters.size()),
         .shape = {size}});
  }
  return manifest;
}

// Every element owned once, in order, cuts aligned, no shard empty, and the two
// views of the same segments equal.
void ExpectSound(const Manifest& manifest, const Partition& partition,
                 int num_shards) {
  ASSERT_EQ(partition.num_shards(), num_shards);
  int64_t total = 0;
  size_t segments = 0;
  for (int shard = 0; shard < num_shards; ++shard) {
    EXPECT_GT(partition.elements_of_shard(shard), 0) << "shard " << shard;
    total += partition.elements_of_shard(shard);
    segments += partition.OfShard(shard).size();
  }
  EXPECT_EQ(total, manifest.num_parameters());
  int last_shard = 0;
  for (size_t t = 0; t < manifest.parameters.size(); ++t) {
    int64_t next = 0;
    for (const Segment& segment : partition.OfTensor(static_cast<int>(t))) {
      EXPECT_EQ(segment.tensor, static_cast<int>(t));
      EXPECT_EQ(segment.begin, next);
      EXPECT_GT(segment.end, segment.begin);
      EXPECT_EQ(segment.begin % kSegmentAlignment, 0);
      EXPECT_GE(segment.shard, last_shard);
      last_shard = segment.shard;
      next = segment.end;
      const Segment& same = partition.OfShard(segment.shard)[segment.local];
      EXPECT_EQ(same.tensor, segment.tensor);
      EXPECT_EQ(same.begin, segment.begin);
      EXPECT_EQ(same.end, segment.end);
      --segments;
    }
    EXPECT_EQ(next, manifest.parameters[t].num_elements()) << t;
  }
  EXPECT_EQ(segments, 0u);
}

double Imbalance(const Manifest& manifest, const Partition& partition) {
  int64_t most = 0;
  for (int shard = 0; shard < partition.num_shards(); ++shard) {
    most = std::max(most, partition.elements_of_shard(shard));
  }
  return static_cast<double>(most) * partition.num_shards() /
         static_cast<double>(manifest.num_parameters());
}

void ExpectBalanced(const Manifest& manifest, int num_shards) {
  SCOPED_TRACE(absl::StrCat(manifest.model, " on ", num_shards, " shards"));
  RV_ASSERT_OK_AND_ASSIGN(const Partition partition,
                          Partition::Create(manifest, num_shards));
  ExpectSound(manifest, partition, num_shards);
  EXPECT_LE(Imbalance(manifest, partition), 1.1);
}

TEST(PartitionTest, EveryBuiltInModelIsBalanced) {
  for (const std::string& model : BuiltInModels()) {
    for (const int64_t channels : {1, 3}) {
      RV_ASSERT_OK_AND_ASSIGN(
          const Manifest manifest,
          BuildManifest({.name = model, .channels = channels}));
      for (int shards = 1; shards <= 8; ++shards) {
        ExpectBalanced(manifest, shards);
      }
    }
  }
}

TEST(PartitionTest, LayersThatDwarfTheRestAreSplit) {
  // 64 MB in one layer among small ones, and a softmax over 10,000 words.
  const Manifest layer = OfSizes({500, 16 << 20, 300, 70000});
  const Manifest softmax =
      OfSizes({10000 * 650, 650, 4 * 650 * 650, 2600, 10000 * 650, 10000});
  for (int shards = 1; shards <= 8; ++shards) {
    ExpectBalanced(layer, shards);
    ExpectBalanced(softmax, shards);
  }
}

TEST(PartitionTest, SmallTensorsStayWholeWhereTheBalanceAllowsIt) {
  RV_ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                          BuildManifest({.name = "resnet20"}));
  for (int shards = 1; shards <= 8; ++shards) {
    RV_ASSERT_OK_AND_ASSIGN(const Partition partition,
                            Partition::Create(manifest, shards));
    for (size_t t = 0; t < manifest.parameters.size(); ++t) {
      if (manifest.parameters[t].num_elements() >= 4 * kSegmentAlignment) {
        continue;
      }
      EXPECT_EQ(partition.OfTensor(static_cast<int>(t)).size(), 1u)
          << manifest.parameters[t].name << " on " << shards;
    }
  }
}

TEST(PartitionTest, SmallTensorsAreCutWhereTheyMustBe) {
  const Manifest manifest = OfSizes({1000});
  RV_ASSERT_OK_AND_ASSIGN(const Partition partition,
                          Partition::Create(manifest, 4));
  ExpectSound(manifest, partition, 4);
  EXPECT_EQ(partition.OfTensor(0).size(), 4u);
}

TEST(PartitionTest, AnyManifestIsOwnedExactlyOnce) {
  constexpr uint64_t kSeed = 3;
  for (uint64_t round = 0; round < 300; ++round) {
    RandomStream rng(kSeed, RandomPurpose::kTest, round);
    std::vector<int64_t> sizes(1 + rng.UniformInt(12));
    for (int64_t& size : sizes) {
      size = 1 + rng.UniformInt(rng.UniformInt(2) == 0 ? 40 : 5000);
    }
    const int shards = static_cast<int>(1 + rng.UniformInt(9));
    SCOPED_TRACE(absl::StrCat("seed ", kSeed, " round ", round));
    int64_t pieces = 0;
    for (const int64_t size : sizes) {
      pieces += (size + kSegmentAlignment - 1) / kSegmentAlignment;
    }
    const Manifest manifest = OfSizes(sizes);
    const absl::StatusOr<Partition> partition =
        Partition::Create(manifest, shards);
    ASSERT_EQ(partition.ok(), pieces >= shards) << partition.status();
    if (partition.ok()) ExpectSound(manifest, *partition, shards);
  }
}

// The rule of the header, by listing every piece: where each shard begins.
std::vector<int64_t> CutsByListing(const std::vector<int64_t>& sizes,
                                   int64_t keep_whole_below, int num_shards) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t size : sizes) {
    const int64_t unit = size < keep_whole_below ? size : kSegmentAlignment;
    const int64_t begin = offsets.back();
    for (int64_t at = 0; at < size; at += unit) {
      offsets.push_back(begin + std::min(at + unit, size));
    }
  }
  const int64_t pieces = static_cast<int64_t>(offsets.size()) - 1;
  if (pieces < num_shards) return {};
  std::vector<int64_t> cuts = {0};
  int64_t last = 0;
  for (int shard = 1; shard < num_shards; ++shard) {
    const int64_t target = offsets.back() * shard / num_shards;
    int64_t nearest = 0;
    for (int64_t i = 0; i <= pieces; ++i) {
      if (std::abs(offsets[i] - target) < std::abs(offsets[nearest] - target)) {
        nearest = i;
      }
    }
    last = std::clamp(nearest, last + 1, pieces - (num_shards - shard));
    cuts.push_back(offsets[last]);
  }
  return cuts;
}

// Elements of the fullest shard.
int64_t Fullest(std::vector<int64_t> cuts, int64_t total) {
  cuts.push_back(total);
  int64_t most = 0;
  for (size_t i = 1; i < cuts.size(); ++i) {
    most = std::max(most, cuts[i] - cuts[i - 1]);
  }
  return most;
}

TEST(PartitionTest, CutsAreThoseOfTheListOfAllPieces) {
  constexpr uint64_t kSeed = 4;
  int kept = 0;  // of the rounds where it makes a difference
  int cut = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    RandomStream rng(kSeed, RandomPurpose::kTest, round);
    std::vector<int64_t> sizes(1 + rng.UniformInt(12));
    for (int64_t& size : sizes) {
      size = 1 + rng.UniformInt(rng.UniformInt(2) == 0 ? 600 : 20000);
    }
    const int shards = static_cast<int>(1 + rng.UniformInt(9));
    SCOPED_TRACE(absl::StrCat("seed ", kSeed, " round ", round));
    const auto partition = Partition::Create(OfSizes(sizes), shards);
    if (!partition.ok()) continue;
    std::vector<int64_t> found;
    int64_t begin = 0;
    for (int shard = 0; shard < shards; ++shard) {
      found.push_back(begin);
      begin += partition->elements_of_shard(shard);
    }
    const std::vector<int64_t> split = CutsByListing(sizes, 0, shards);
    const std::vector<int64_t> whole =
        CutsByListing(sizes, 4 * kSegmentAlignment, shards);
    // Small tensors stay whole where no shard then has more than 1.1 times the
    // mean, or no more than it would have without.
    const int64_t total = begin;
    const int64_t most = Fullest(whole, total);
    const bool balanced = 10 * most * shards <= 11 * total;
    const bool keeps =
        !whole.empty() && (balanced || most <= Fullest(split, total));
    EXPECT_EQ(found, keeps ? whole : split);
    if (whole == split) continue;
    ++(keeps ? kept : cut);
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(cut, 20);
}

TEST(PartitionTest, HugeTensorsCostNothing) {
  // By pieces of 256 elements this would be a list of 10^13.
  const std::vector<int64_t> sizes = {int64_t{1} << 50, 5,
                                      (int64_t{1} << 50) - 1, int64_t{1} << 51};
  const Manifest manifest = OfSizes(sizes);
  for (const int shards : {1, 2, 7, 255}) ExpectBalanced(manifest, shards);
}

TEST(PartitionTest, RefusesNoShardsAndTooMany) {
  const Manifest manifest = OfSizes({300, 5});
  EXPECT_THAT(Partition::Create(manifest, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("number of shards is 0")));
  EXPECT_THAT(Partition::Create(manifest, 4).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 3 shards, found 4")));
  EXPECT_THAT(Partition::Create(OfSizes({}), 1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace rivulet
