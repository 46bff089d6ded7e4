#include "compression/selector.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {
namespace {

// The loop's gain in units of Hill's estimate: the same both ways, so that the
// mean count is the target.
constexpr double kGain = 0.7;
// After the gradients shrink (a drop of the learning rate does it in time)
// hardly anything crosses the threshold, and the excess of what does is no
// measure of how far it has to fall: from a shortfall on that chance seldom
// makes, in standard deviations of a count, it falls by a least amount.
constexpr double kShortfall = 0.8;
constexpr double kMinHillDown = 0.05;
// The largest change of the log threshold in one step.
constexpr double kMaxLogStep = 0.7;
// This many times the target calls for a new threshold.
constexpr double kTooMany = 4;
// So does less than this share of it, less two standard deviations of a count.
constexpr double kTooFew = 0.8;
// Of so many candidates the excess is measured, at most.
constexpr size_t kExcessSample = 256;
// Below this a list is cheaper to partition than a histogram is to clear.
constexpr int64_t kShortList = 4096;

// Magnitudes order as their bits do, so the bits are a logarithm: 8 exponent
// bits, then the mantissa.
uint32_t MagnitudeKey(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
}

// Finds the bin in which the k-th largest key lies, counting bins from the top;
// *k becomes its rank within the bin.
template <size_t kBins>
uint32_t BinOfRank(const std::array<int64_t, kBins>& histogram, int64_t* k) {
  size_t bin = kBins - 1;
  while (histogram[bin] < *k) {
    *k -= histogram[bin];
    RV_CHECK_GT(bin, 0u);
    --bin;
  }
  return static_cast<uint32_t>(bin);
}

// Calls f(value) for each of `values` in turn, or for the runs of kSampleRun
// that begin at every kSampleEvery-th. The period is no power of two, so that a
// matrix's sampled columns change from row to row.
constexpr int64_t kSampleRun = 16;
constexpr int64_t kSampleEvery = 1040;
template <typename F>
void ForEach(const ValuesView& values, bool sampled, F f) {
  const int64_t run = sampled ? kSampleRun : values.size;
  const int64_t every = sampled ? kSampleEvery : values.size;
  for (int64_t begin = 0; begin < values.size; begin += every) {
    const int64_t end = std::min(values.size, begin + run);
    for (int64_t i = begin; i < end; ++i) f(values[static_cast<size_t>(i)]);
  }
}

// The magnitude key of the k-th largest of `values` (or of their sample), 1 <=
// k
// <= their number, in O(n): a histogram of 12 bits (16 bins an octave), then of
// the rest within its bin.
uint32_t KthLargestKey(const ValuesView& values, int64_t k,
                       bool sampled = false) {
  RV_CHECK_GE(k, 1);
  RV_CHECK_LE(k, values.size);
  if (values.size < kShortList) {
    std::vector<uint32_t> keys;
    keys.reserve(static_cast<size_t>(values.size));
    ForEach(values, sampled, [&](float v) { keys.push_back(MagnitudeKey(v)); });
    std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(),
                     std::greater<>());
    return keys[static_cast<size_t>(k - 1)];
  }
  std::array<int64_t, 4096> coarse{};
  ForEach(values, sampled, [&](float v) { ++coarse[MagnitudeKey(v) >> 19]; });
  const uint32_t top = BinOfRank(coarse, &k);

  std::vector<uint32_t> keys;
  keys.reserve(static_cast<size_t>(coarse[top]));
  std::array<int64_t, 1024> middle{};
  ForEach(values, sampled, [&](float v) {
    const uint32_t key = MagnitudeKey(v);
    if (key >> 19 != top) return;
    keys.push_back(key);
    ++middle[(key >> 9) & 1023];
  });
  const uint32_t mid = BinOfRank(middle, &k);

  std::array<int64_t, 512> fine{};
  for (const uint32_t key : keys) {
    if (((key >> 9) & 1023) == mid) ++fine[key & 511];
  }
  return top << 19 | mid << 9 | BinOfRank(fine, &k);
}

// The key of a magnitude that about `aim` of `values` reach: exactly so many
// (ties apart), or, of a long list, probably no fewer and not many more.
uint32_t KeyForCount(const ValuesView& values, int64_t aim) {
  constexpr int64_t kSampleFrom = int64_t{1} << 20;
  constexpr int64_t kLeastInSample = 16;
  if (values.size >= kSampleFrom) {
    const double expected =
        static_cast<double>(aim) * kSampleRun / kSampleEvery;
    const auto rank =
        static_cast<int64_t>(std::ceil(expected + 3 * std::sqrt(expected)));
    if (rank >= kLeastInSample &&
        rank <= values.size / kSampleEvery * kSampleRun) {
      return KthLargestKey(values, rank, /*sampled=*/true);
    }
  }
  return KthLargestKey(values, aim);
}

// Appends the elements of a magnitude key of at least `min_key`, which is > 0.
void AppendFrom(const ValuesView& values, uint32_t min_key, Candidates* found) {
  PassArgs args;
  args.size = values.size;
  args.g = values.a;
  if (values.b == nullptr) {
    RunPass(args, std::bit_cast<float>(min_key), found);
    return;
  }
  for (int64_t i = 0; i < values.size; ++i) {
    const float v = values[static_cast<size_t>(i)];
    if (MagnitudeKey(v) < min_key) continue;
    found->positions.push_back(static_cast<uint32_t>(i));
    found->values.push_back(v);
  }
}

// Drops those of a magnitude below `min_key`.
void KeepFrom(uint32_t min_key, Candidates* candidates) {
  auto& [positions, values] = *candidates;
  size_t kept = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[kept] = positions[i];
    values[kept] = values[i];
    kept += MagnitudeKey(values[i]) >= min_key ? 1 : 0;
  }
  positions.resize(kept);
  values.resize(kept);
}

// Keeps the k largest candidates, ties apart.
void Trim(const ValuesView& all, int64_t k, Candidates* candidates) {
  if (candidates->size() <= k) return;
  const uint32_t key = KthLargestKey(candidates->values, k);
  KeepFrom(key, candidates);
  if (candidates->size() > Selector::kMostTies * k) {
    KeepFrom(key + 1, candidates);
    // All that is left is tied. Sending none would leave it tied for ever.
    if (candidates->size() == 0) *candidates = SelectExact(all, k);
  }
}

// Hill's estimate: the mean of log(|v| / threshold), each term at most log 16
// so that no outlier rules it.
double MeanLogExcess(absl::Span<const float> values, float threshold) {
  constexpr int kFactorsALog = 64;  // 16^64 is a double
  const double inverse = 1 / static_cast<double>(threshold);
  const size_t stride = values.size() / kExcessSample + 1;
  double sum = 0;
  double product = 1;
  int factors = 0;
  int64_t count = 0;
  for (size_t i = 0; i < values.size(); i += stride) {
    product *=
        std::min(16.0, static_cast<double>(std::fabs(values[i])) * inverse);
    ++count;
    if (++factors < kFactorsALog) continue;
    sum += std::log(product);
    product = 1;
    factors = 0;
  }
  return (sum + std::log(product)) / static_cast<double>(count);
}

// The threshold for the next step, given this step's candidates (not empty).
float Corrected(const Candidates& candidates, float threshold, int64_t target) {
  const double hill = MeanLogExcess(candidates.values, threshold);
  const double error =
      static_cast<double>(candidates.size()) / static_cast<double>(target) - 1;
  const bool short_of_it =
      error < -kShortfall / std::sqrt(static_cast<double>(target));
  const double scale = short_of_it ? std::max(hill, kMinHillDown) : hill;
  const double change =
      std::clamp(kGain * scale * error, -kMaxLogStep, kMaxLogStep);
  const float next =
      static_cast<float>(static_cast<double>(threshold) * std::exp(change));
  return std::clamp(next, std::numeric_limits<float>::denorm_min(),
                    std::numeric_limits<float>::max());
}

}  // namespace

std::string FormatSelectorState(const SelectorState& state) {
  return absl::StrCat(std::bit_cast<uint32_t>(state.threshold));
}

absl::StatusOr<SelectorState> ParseSelectorState(absl::string_view text) {
  uint32_t bits = 0;
  if (absl::SimpleAtoi(text, &bits)) {
    const SelectorState state{std::bit_cast<float>(bits)};
    if (std::isfinite(state.threshold) && !std::signbit(state.threshold)) {
      return state;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CEscape(text),
                   "\" is no selector's state: the bits of a threshold"));
}

int64_t TargetCount(int64_t n, double density) {
  if (n == 0) return 0;
  RV_CHECK(density > 0 && density <= 1) << density;
  const double exact = density * static_cast<double>(n);
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(exact * (1 - 1e-12))), 1, n);
}

Candidates SelectExact(const ValuesView& values, int64_t count) {
  Candidates selected;
  count = std::min(count, values.size);
  if (count <= 0) return selected;
  const uint32_t key = KthLargestKey(values, count);
  // Ties fill what the larger ones leave.
  int64_t ties = count;
  ForEach(values, /*sampled=*/false,
          [&](float v) { ties -= MagnitudeKey(v) > key ? 1 : 0; });
  if (key == 0) ties = 0;
  for (int64_t i = 0; i < values.size; ++i) {
    const float v = values[static_cast<size_t>(i)];
    const uint32_t other = MagnitudeKey(v);
    if (other > key || (other == key && ties-- > 0)) {
      selected.positions.push_back(static_cast<uint32_t>(i));
      selected.values.push_back(v);
    }
  }
  return selected;
}

float Selector::CandidateThreshold(int64_t n) const {
  const bool usable = n >= kExactBelow && state_.threshold > 0;
  return usable ? state_.threshold : std::numeric_limits<float>::infinity();
}

void Selector::SelectFrom(const ValuesView& values, double density,
                          Candidates* candidates) {
  const int64_t n = values.size;
  const int64_t k = TargetCount(n, density);
  if (n < kExactBelow) {
    *candidates = SelectExact(values, k);
    return;
  }

  const auto target = static_cast<double>(k);
  const auto count = static_cast<double>(candidates->size());
  const double spread = 2 * std::sqrt(target);
  const bool had_threshold = std::isfinite(CandidateThreshold(n));
  const bool enough =
      had_threshold && count >= std::max(1.0, kTooFew * target - spread);
  if (enough && count <= kTooMany * target + spread) {
    state_.threshold = Corrected(*candidates, state_.threshold, k);
    if (count > std::max(kCap * target, target + spread)) {
      Trim(values, k, candidates);
    }
    return;
  }
  if (!enough) {
    candidates->clear();
    AppendFrom(values, std::max(KeyForCount(values, k), 1u), candidates);
    if (candidates->size() < k) {  // the sample misled, or the rest are zeros
      candidates->clear();
      AppendFrom(values, std::max(KthLargestKey(values, k), 1u), candidates);
    }
  }
  // The candidates hold the answer now. With fewer than k that are not zero
  // there is no threshold: the next step looks at all again.
  state_.threshold =
      candidates->size() < k
          ? 0
          : std::bit_cast<float>(KthLargestKey(candidates->values, k));
  Trim(values, k, candidates);
}

}  // namespace rivulet
