#include "models/layers/parameters.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace rivulet {
namespace {

constexpr float kMomentum = 0.1f;

int FindByName(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto it =
      std::find_if(specs.begin(), specs.end(),
                   [&](const TensorSpec& spec) { return spec.name == name; });
  RV_CHECK(it != specs.end()) << "the manifest has no tensor " << name;
  return static_cast<int>(it - specs.begin());
}

// From the biased variance of `count` values to the unbiased one. A single
// value has none; its biased variance, 0, is kept.
double UnbiasedFactor(int64_t count) {
  return count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1)
                   : 1.0;
}

void MoveTowards(absl::Span<float> running, absl::Span<const float> values,
                 float factor) {
  for (std::size_t c = 0; c < running.size(); ++c) {
    running[c] =
        (1.0f - kMomentum) * running[c] + kMomentum * (values[c] * factor);
  }
}

}  // namespace

Parameters::Tensors::Tensors(const std::vector<TensorSpec>& specs) {
  constexpr int64_t kLine = AlignedBuffer<float>::kAlignment / sizeof(float);
  int64_t end = 0;
  for (const TensorSpec& spec : specs) {
    offsets_.push_back(end);
    sizes_.push_back(spec.num_elements());
    end += (spec.num_elements() + kLine - 1) / kLine * kLine;
  }
  data_ = AlignedBuffer<float>(end);
}

absl::Span<float> Parameters::Tensors::at(int index) {
  return data_.span().subspan(offsets_.at(index), sizes_[index]);
}

Parameters::Parameters(Manifest manifest)
    : manifest_(std::move(manifest)),
      values_(manifest_.parameters),
      buffers_(manifest_.buffers) {
  for (const TensorSpec& spec : manifest_.parameters) {
    gradients_.emplace_back(spec.num_elements());
  }
}

int Parameters::Find(const std::string& name) const {
  return FindByName(manifest_.parameters, name);
}

int Parameters::FindBuffer(const std::string& name) const {
  return FindByName(manifest_.buffers, name);
}

absl::Span<float> Parameters::value(int index) { return values_.at(index); }
absl::Span<float> Parameters::gradient(int index) {
  return gradients_.at(static_cast<size_t>(index)).span();
}
absl::Span<const float> Parameters::gradient(int index) const {
  return gradients_.at(static_cast<size_t>(index)).span();
}
AlignedBuffer<float>& Parameters::gradient_buffer(int index) {
  return gradients_.at(static_cast<size_t>(index));
}
absl::Span<float> Parameters::buffer(int index) { return buffers_.at(index); }

void Parameters::RecordStatistics(int mean_buffer, int variance_buffer,
                                  absl::Span<const float> mean,
                                  absl::Span<const float> variance,
                                  int64_t count) {
  const double unbiased = UnbiasedFactor(count);
  if (gathering_) {
    Gather(mean_buffer, mean, 1.0);
    Gather(variance_buffer, variance, unbiased);
  } else {
    MoveTowards(buffer(mean_buffer), mean, 1.0f);
    MoveTowards(buffer(variance_buffer), variance,
                static_cast<float>(unbiased));
  }
}

void Parameters::BeginStatistics() {
  gathering_ = true;
  gathered_.assign(manifest_.buffers.size(), Gathered{});
}

void Parameters::Gather(int buffer, absl::Span<const float> values,
                        double factor) {
  Gathered& gathered = gathered_.at(buffer);
  gathered.sum.resize(values.size(), 0.0);
  for (std::size_t c = 0; c < values.size(); ++c) {
    gathered.sum[c] += values[c] * factor;
  }
  ++gathered.batches;
}

void Parameters::EndStatistics() {
  RV_CHECK(gathering_) << "EndStatistics without BeginStatistics";
  for (std::size_t b = 0; b < gathered_.size(); ++b) {
    if (gathered_[b].batches == 0) continue;
    absl::Span<float> out = buffer(static_cast<int>(b));
    for (std::size_t c = 0; c < out.size(); ++c) {
      out[c] = static_cast<float>(gathered_[b].sum[c] /
                                  static_cast<double>(gathered_[b].batches));
    }
  }
  gathering_ = false;
}

}  // namespace rivulet
