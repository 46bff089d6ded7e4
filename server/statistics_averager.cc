#include "server/statistics_averager.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rivulet {

StatisticsAverager::StatisticsAverager(int64_t elements, int ranks)
    : elements_(elements), ranks_(ranks) {
  RV_CHECK_GT(ranks, 0);
}

absl::Status StatisticsAverager::Add(int rank, absl::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) != elements_ * 4) {
    return absl::InvalidArgumentError(absl::StrCat(
        "statistics of worker ", rank, ": ", bytes.size(), " bytes, expected ",
        elements_ * 4, " (", elements_, " values of all buffers)"));
  }
  std::vector<float> values(static_cast<size_t>(elements_));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "statistics of worker ", rank, ": value ", i, " is not finite"));
    }
  }
  auto [it, inserted] = by_rank_.try_emplace(rank, std::move(values));
  if (!inserted &&
      std::memcmp(it->second.data(), bytes.data(), bytes.size()) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "statistics of worker ", rank, ": already here, and different"));
  }
  return absl::OkStatus();
}

std::vector<float> StatisticsAverager::TakeMean() {
  RV_CHECK(ready()) << by_rank_.size() << " of " << ranks_;
  std::vector<double> sum(static_cast<size_t>(elements_), 0.0);
  for (const auto& [rank, values] : by_rank_) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  std::vector<float> mean(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    mean[i] = static_cast<float>(sum[i] / ranks_);
  }
  by_rank_.clear();
  return mean;
}

}  // namespace rivulet
