#include "compression/selector.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "compression/pass.h"

namespace rivulet {
namespace {

// The loop's gains in units of Hill's estimate. Too many candidates cost a
// little time, too few cost the step entries, so the threshold falls faster
// than it rises, and by a least amount: after the gradients shrink (a drop of
// the learning rate does it in time) nothing crosses it, and the excess of what
// does is no measure of how far it has to fall.
constexpr double kGainUp = 0.5;
constexpr double kGainDown = 1.0;
constexpr double kMinHillDown = 0.02;
// The largest change of the log threshold in one step.
constexpr double kMaxLogStep = 0.7;
// This many times the aim, or less than this share of the target, calls for a
// new threshold.
constexpr int64_t kTooMany = 4;
constexpr double kTooFew = 0.8;

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

// The magnitude key of the k-th largest of `values`, 1 <= k <= size, in O(n): a
// histogram of 12 bits (16 bins an octave), then of the rest within its bin.
uint32_t KthLargestKey(absl::Span<const float> values, int64_t k) {
  RV_CHECK_GE(k, 1);
  RV_CHECK_LE(k, static_cast<int64_t>(values.size()));
  std::array<int64_t, 4096> coarse{};
  for (const float v : values) ++coarse[MagnitudeKey(v) >> 19];
  const uint32_t top = BinOfRank(coarse, &k);

  std::vector<uint32_t> keys;
  keys.reserve(static_cast<size_t>(coarse[top]));
  std::array<int64_t, 1024> middle{};
  for (const float v : values) {
    const uint32_t key = MagnitudeKey(v);
    if (key >> 19 != top) continue;
    keys.push_back(key);
    ++middle[(key >> 9) & 1023];
  }
  const uint32_t mid = BinOfRank(middle, &k);

  std::array<int64_t, 512> fine{};
  for (const uint32_t key : keys) {
    if (((key >> 9) & 1023) == mid) ++fine[key & 511];
  }
  return top << 19 | mid << 9 | BinOfRank(fine, &k);
}

// Positions and, gathered once, their values.
struct Candidates {
  Candidates(absl::Span<const float> all, std::vector<uint32_t> at)
      : positions(std::move(at)) {
    values.reserve(positions.size());
    for (const uint32_t p : positions) values.push_back(all[p]);
  }

  int64_t size() const { return static_cast<int64_t>(positions.size()); }

  // Drops those of a magnitude below `min_key`.
  void KeepFrom(uint32_t min_key) {
    size_t kept = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      positions[kept] = positions[i];
      values[kept] = values[i];
      kept += MagnitudeKey(values[i]) >= min_key ? 1 : 0;
    }
    positions.resize(kept);
    values.resize(kept);
  }

  std::vector<uint32_t> positions;
  std::vector<float> values;
};

// Raises the threshold until at most k candidates are left, ties apart.
std::vector<uint32_t> Trim(absl::Span<const float> all, int64_t k,
                           Candidates candidates) {
  if (candidates.size() <= k) return std::move(candidates.positions);
  const uint32_t key = KthLargestKey(candidates.values, k);
  candidates.KeepFrom(key);
  if (candidates.size() > Selector::kCap * k) {
    candidates.KeepFrom(key + 1);
    // All that is left is tied. Sending none would leave it tied for ever.
    if (candidates.size() == 0) return SelectExact(all, k);
  }
  return std::move(candidates.positions);
}

// Hill's estimate: the mean of log(|v| / threshold), each term at most log 16
// so that no outlier rules it.
double MeanLogExcess(absl::Span<const float> values, float threshold) {
  constexpr int kFactorsALog = 64;  // 16^64 is a double
  double sum = 0;
  double product = 1;
  int factors = 0;
  for (const float v : values) {
    product *= std::min(16.0, static_cast<double>(std::fabs(v)) /
                                  static_cast<double>(threshold));
    if (++factors < kFactorsALog) continue;
    sum += std::log(product);
    product = 1;
    factors = 0;
  }
  return (sum + std::log(product)) / static_cast<double>(values.size());
}

// The threshold for the next step, given this step's candidates (not empty).
float Corrected(const Candidates& candidates, float threshold, int64_t aim) {
  const double hill = MeanLogExcess(candidates.values, threshold);
  const double error =
      static_cast<double>(candidates.size()) / static_cast<double>(aim) - 1;
  const double gain =
      error > 0 ? kGainUp * hill : kGainDown * std::max(hill, kMinHillDown);
  const double change = std::clamp(gain * error, -kMaxLogStep, kMaxLogStep);
  const float next =
      static_cast<float>(static_cast<double>(threshold) * std::exp(change));
  return std::clamp(next, std::numeric_limits<float>::denorm_min(),
                    std::numeric_limits<float>::max());
}

}  // namespace

std::string FormatSelectorState(const SelectorState& state) {
  return absl::StrCat(std::bit_cast<uint32_t>(state.threshold), " ",
                      state.steps_since_refresh);
}

absl::StatusOr<SelectorState> ParseSelectorState(absl::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::ByAnyChar(" ,"));
  SelectorState state;
  uint32_t bits = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &bits) &&
      absl::SimpleAtoi(parts[1], &state.steps_since_refresh)) {
    state.threshold = std::bit_cast<float>(bits);
    if (std::isfinite(state.threshold) && state.threshold >= 0 &&
        state.steps_since_refresh >= 0 &&
        state.steps_since_refresh <= Selector::kRefreshEvery) {
      return state;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CEscape(text),
                   "\" is no selector's state: the bits of a threshold, and 0 "
                   "to ",
                   Selector::kRefreshEvery, " steps"));
}

int64_t TargetCount(int64_t n, double density) {
  if (n == 0) return 0;
  RV_CHECK(density > 0 && density <= 1) << density;
  const double exact = density * static_cast<double>(n);
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(exact * (1 - 1e-12))), 1, n);
}

std::vector<uint32_t> SelectExact(absl::Span<const float> values,
                                  int64_t count) {
  std::vector<uint32_t> positions;
  count = std::min(count, static_cast<int64_t>(values.size()));
  if (count <= 0) return positions;
  const uint32_t key = KthLargestKey(values, count);
  // Ties fill what the larger ones leave.
  int64_t ties = count;
  for (const float v : values) ties -= MagnitudeKey(v) > key ? 1 : 0;
  if (key == 0) ties = 0;
  positions.reserve(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t other = MagnitudeKey(values[i]);
    if (other > key || (other == key && ties-- > 0)) {
      positions.push_back(static_cast<uint32_t>(i));
    }
  }
  return positions;
}

float Selector::CandidateThreshold(int64_t n) const {
  const bool usable = n >= kExactBelow && state_.threshold > 0 &&
                      state_.steps_since_refresh < kRefreshEvery;
  return usable ? state_.threshold : std::numeric_limits<float>::infinity();
}

std::vector<uint32_t> Selector::SelectFrom(absl::Span<const float> values,
                                           double density,
                                           std::vector<uint32_t> candidates) {
  const int64_t n = static_cast<int64_t>(values.size());
  const int64_t k = TargetCount(n, density);
  if (n < kExactBelow) return SelectExact(values, k);

  const double spare = 2 * std::sqrt(static_cast<double>(k));
  const int64_t aim = std::min(n, k + static_cast<int64_t>(std::ceil(spare)));
  const bool had_threshold = std::isfinite(CandidateThreshold(n));
  const int64_t count = static_cast<int64_t>(candidates.size());
  if (had_threshold && count <= kTooMany * aim &&
      static_cast<double>(count) >= kTooFew * static_cast<double>(k)) {
    Candidates found(values, std::move(candidates));
    state_.threshold = Corrected(found, state_.threshold, aim);
    ++state_.steps_since_refresh;
    return Trim(values, k, std::move(found));
  }

  state_.steps_since_refresh = 0;
  if (had_threshold && count > kTooMany * aim) {
    // Too many candidates hold the answer already.
    Candidates found(values, std::move(candidates));
    const uint32_t key = KthLargestKey(found.values, aim);
    found.KeepFrom(key);
    state_.threshold = std::bit_cast<float>(key);
    return Trim(values, k, std::move(found));
  }
  const uint32_t key = KthLargestKey(values, aim);
  state_.threshold = std::bit_cast<float>(key);
  // With fewer than `aim` values that are not zero, key is 0: all of those.
  candidates.clear();
  AppendAtLeast(values, std::bit_cast<float>(std::max(key, 1u)), &candidates);
  return Trim(values, k, Candidates(values, std::move(candidates)));
}

}  // namespace rivulet
