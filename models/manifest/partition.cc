#include "models/manifest/partition.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {
namespace {

// Tensors below this size stay whole where the balance allows it: a piece of
// them would cost a header to save next to nothing.
constexpr int64_t kKeepWholeBelow = 4 * kSegmentAlignment;
constexpr double kMaxImbalance = 1.1;

// A run of elements that is not cut.
struct Unit {
  int tensor = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

std::vector<Unit> UnitsOf(const Manifest& manifest, int64_t keep_whole_below) {
  std::vector<Unit> units;
  for (size_t t = 0; t < manifest.parameters.size(); ++t) {
    const int64_t size = manifest.parameters[t].num_elements();
    const int64_t unit = size < keep_whole_below ? size : kSegmentAlignment;
    for (int64_t begin = 0; begin < size; begin += unit) {
      units.push_back(
          {static_cast<int>(t), begin, std::min(begin + unit, size)});
    }
  }
  return units;
}

// Where each shard's units begin, plus the end: the boundary between units that
// is nearest to an equal share, moved as far as needed to leave no shard empty.
// Needs at least as many units as shards.
struct Cuts {
  std::vector<size_t> at;
  int64_t largest = 0;  // elements of the fullest shard
};

Cuts CutEvenly(const std::vector<Unit>& units, int num_shards) {
  std::vector<int64_t> offsets = {0};  // elements before unit i
  for (const Unit& unit : units) {
    offsets.push_back(offsets.back() + (unit.end - unit.begin));
  }
  const int64_t total = offsets.back();
  Cuts cuts;
  cuts.at.push_back(0);
  for (int shard = 1; shard <= num_shards; ++shard) {
    // total / n and total % n apart, so that nothing overflows.
    const int64_t target =
        total / num_shards * shard + total % num_shards * shard / num_shards;
    size_t cut = std::lower_bound(offsets.begin(), offsets.end(), target) -
                 offsets.begin();
    if (cut > 0 && target - offsets[cut - 1] <= offsets[cut] - target) --cut;
    const size_t latest =
        units.size() - static_cast<size_t>(num_shards - shard);
    cut = std::clamp(cut, cuts.at.back() + 1, latest);
    if (shard == num_shards) cut = units.size();
    cuts.largest =
        std::max(cuts.largest, offsets[cut] - offsets[cuts.at.back()]);
    cuts.at.push_back(cut);
  }
  return cuts;
}

}  // namespace

absl::StatusOr<Partition> Partition::Create(const Manifest& manifest,
                                            int num_shards) {
  if (num_shards < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "number of shards is ", num_shards, ", allowed is at least 1"));
  }
  const size_t wanted = static_cast<size_t>(num_shards);
  std::vector<Unit> units = UnitsOf(manifest, /*keep_whole_below=*/0);
  if (units.size() < wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", manifest.model, " with ", manifest.num_parameters(),
        " parameters can be split among at most ", units.size(),
        " shards, found ", num_shards));
  }
  Cuts cuts = CutEvenly(units, num_shards);
  std::vector<Unit> whole = UnitsOf(manifest, kKeepWholeBelow);
  if (whole.size() >= wanted) {
    Cuts candidate = CutEvenly(whole, num_shards);
    const double mean =
        static_cast<double>(manifest.num_parameters()) / num_shards;
    if (static_cast<double>(candidate.largest) <= kMaxImbalance * mean ||
        candidate.largest <= cuts.largest) {
      units = std::move(whole);
      cuts = std::move(candidate);
    }
  }

  Partition partition;
  partition.by_shard_.resize(wanted);
  partition.by_tensor_.resize(manifest.parameters.size());
  for (int shard = 0; shard < num_shards; ++shard) {
    std::vector<Segment>& owned = partition.by_shard_[shard];
    for (size_t u = cuts.at[shard]; u < cuts.at[shard + 1]; ++u) {
      const Unit& unit = units[u];
      if (!owned.empty() && owned.back().tensor == unit.tensor) {
        owned.back().end = unit.end;
        continue;
      }
      owned.push_back({.tensor = unit.tensor,
                       .begin = unit.begin,
                       .end = unit.end,
                       .shard = shard,
                       .local = static_cast<int>(owned.size())});
    }
    for (const Segment& segment : owned) {
      partition.by_tensor_[segment.tensor].push_back(segment);
    }
  }
  return partition;
}

absl::Span<const Segment> Partition::OfShard(int shard) const {
  RV_CHECK(shard >= 0 && shard < num_shards()) << shard;
  return by_shard_[shard];
}

absl::Span<const Segment> Partition::OfTensor(int tensor) const {
  RV_CHECK(tensor >= 0 && static_cast<size_t>(tensor) < by_tensor_.size())
      << tensor;
  return by_tensor_[tensor];
}

int64_t Partition::elements_of_shard(int shard) const {
  int64_t elements = 0;
  for (const Segment& segment : OfShard(shard)) elements += segment.size();
  return elements;
}

}  // namespace rivulet
