#include "models/manifest/partition.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {
namespace {

// Tensors below this size stay whole where the balance allows it: a piece of
// them would cost a header to save next to nothing.
constexpr int64_t kKeepWholeBelow = 4 * kSegmentAlignment;
constexpr double kMaxImbalance = 1.1;

// The parameters laid end to end, as runs of elements ("units") that are not
// cut: a whole tensor below `keep_whole_below` elements, otherwise its pieces
// of kSegmentAlignment. Units are counted, not listed: a tensor may have
// millions.
class Units {
 public:
  Units(const Manifest& manifest, int64_t keep_whole_below) {
    tensors_.reserve(manifest.parameters.size() + 1);
    Tensor next;  // where the next tensor begins
    for (const TensorSpec& spec : manifest.parameters) {
      const int64_t size = spec.num_elements();
      next.unit_size = size < keep_whole_below ? size : kSegmentAlignment;
      tensors_.push_back(next);
      if (size == 0) continue;
      next.first_element += size;
      next.first_unit += (size - 1) / next.unit_size + 1;
    }
    tensors_.push_back(next);
  }

  int64_t count() const { return tensors_.back().first_unit; }
  int64_t num_elements() const { return tensors_.back().first_element; }

  // Elements before unit `unit`, in [0, count()].
  int64_t ElementsBefore(int64_t unit) const {
    // The last tensor that begins at or before it.
    const auto after = std::upper_bound(
        tensors_.begin(), tensors_.end(), unit,
        [](int64_t u, const Tensor& t) { return u < t.first_unit; });
    const Tensor& tensor = *(after - 1);
    return tensor.first_element + (unit - tensor.first_unit) * tensor.unit_size;
  }

  // The first unit that has at least `elements`, in [0, num_elements()], before
  // it.
  int64_t FirstWith(int64_t elements) const {
    // The last tensor that begins at or before that element.
    const auto after = std::upper_bound(
        tensors_.begin(), tensors_.end(), elements,
        [](int64_t e, const Tensor& t) { return e < t.first_element; });
    const Tensor& tensor = *(after - 1);
    const int64_t inside = elements - tensor.first_element;
    if (inside == 0) return tensor.first_unit;
    return tensor.first_unit + (inside - 1) / tensor.unit_size + 1;
  }

 private:
  struct Tensor {
    int64_t first_element = 0;
    int64_t first_unit = 0;
    int64_t unit_size = 1;
  };
  std::vector<Tensor> tensors_;  // and one past the last
};

// Where each shard's elements begin, plus the end: the boundary between units
// that is nearest to an equal share, moved as far as needed to leave no shard
// empty. Needs at least as many units as shards.
struct Cuts {
  std::vector<int64_t> at;
  int64_t largest = 0;  // elements of the fullest shard
};

Cuts CutEvenly(const Units& units, int num_shards) {
  const int64_t total = units.num_elements();
  Cuts cuts;
  cuts.at.push_back(0);
  int64_t last_unit = 0;
  for (int shard = 1; shard <= num_shards; ++shard) {
    // total / n and total % n apart, so that nothing overflows.
    const int64_t target =
        total / num_shards * shard + total % num_shards * shard / num_shards;
    int64_t unit = units.FirstWith(target);
    if (unit > 0 && target - units.ElementsBefore(unit - 1) <=
                        units.ElementsBefore(unit) - target) {
      --unit;
    }
    unit =
        std::clamp(unit, last_unit + 1, units.count() - (num_shards - shard));
    if (shard == num_shards) unit = units.count();
    last_unit = unit;
    const int64_t end = units.ElementsBefore(unit);
    cuts.largest = std::max(cuts.largest, end - cuts.at.back());
    cuts.at.push_back(end);
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
  const Units smallest(manifest, /*keep_whole_below=*/0);
  if (smallest.count() < num_shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", manifest.model, " with ", manifest.num_parameters(),
        " parameters can be split among at most ", smallest.count(),
        " shards, found ", num_shards));
  }
  Cuts cuts = CutEvenly(smallest, num_shards);
  const Units whole(manifest, kKeepWholeBelow);
  if (whole.count() >= num_shards) {
    Cuts candidate = CutEvenly(whole, num_shards);
    const double mean =
        static_cast<double>(manifest.num_parameters()) / num_shards;
    if (static_cast<double>(candidate.largest) <= kMaxImbalance * mean ||
        candidate.largest <= cuts.largest) {
      cuts = std::move(candidate);
    }
  }

  Partition partition;
  partition.by_shard_.resize(static_cast<size_t>(num_shards));
  partition.by_tensor_.resize(manifest.parameters.size());
  int64_t tensor_begin = 0;
  int shard = 0;
  for (size_t t = 0; t < manifest.parameters.size(); ++t) {
    const int64_t size = manifest.parameters[t].num_elements();
    for (int64_t begin = 0; begin < size;) {
      while (cuts.at[shard + 1] <= tensor_begin + begin) ++shard;
      const int64_t end = std::min(size, cuts.at[shard + 1] - tensor_begin);
      std::vector<Segment>& owned = partition.by_shard_[shard];
      owned.push_back({.tensor = static_cast<int>(t),
                       .begin = begin,
                       .end = end,
                       .shard = shard,
                       .local = static_cast<int>(owned.size())});
      partition.by_tensor_[t].push_back(owned.back());
      begin = end;
    }
    tensor_begin += size;
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
