#include "server/aggregator.h"

#include <algorithm>
#include <cstddef>

#include "common/base/check.h"

namespace rivulet {

Aggregator::Aggregator(absl::Span<const int64_t> segment_sizes) {
  offsets_.reserve(segment_sizes.size() + 1);
  offsets_.push_back(0);
  for (int64_t size : segment_sizes) offsets_.push_back(offsets_.back() + size);
  sum_.resize(static_cast<size_t>(offsets_.back()));
}

absl::Span<const float> Aggregator::Mean(
    std::vector<Contribution> contributions) {
  std::fill(sum_.begin(), sum_.end(), 0.0f);
  const int64_t total = TotalSamples(contributions);
  if (total == 0) return sum_;
  // fp32 addition is not associative: the order must not be that of arrival.
  std::sort(contributions.begin(), contributions.end(),
            [](const Contribution& a, const Contribution& b) {
              return a.rank < b.rank;
            });
  for (const Contribution& c : contributions) {
    if (c.samples == 0) continue;
    const float scale = static_cast<float>(static_cast<double>(c.samples) /
                                           static_cast<double>(total));
    for (const SegmentUpdate& update : c.updates) {
      RV_CHECK_LT(update.segment + 1, offsets_.size());
      const int64_t begin = offsets_[update.segment];
      const int64_t end = offsets_[update.segment + 1];
      update.AddTo(scale, absl::MakeSpan(sum_.data() + begin,
                                         static_cast<size_t>(end - begin)));
    }
  }
  return sum_;
}

int64_t TotalSamples(absl::Span<const Contribution> contributions) {
  int64_t total = 0;
  for (const Contribution& c : contributions) total += c.samples;
  return total;
}

}  // namespace rivulet
