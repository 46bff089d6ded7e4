// What the tests of this folder share.

#ifndef RIVULET_TESTS_COMPRESSION_TEST_UTIL_H_
#define RIVULET_TESTS_COMPRESSION_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/random.h"
#include "compression/compressed_tensor.h"
#include "compression/gradient_compressor.h"
#include "compression/quantizer.h"
#include "compression/selector.h"
#include "gtest/gtest.h"

namespace rivulet::testing {

inline std::vector<float> NormalVector(uint64_t seed, int64_t n,
                                       float scale = 1, uint64_t step = 0) {
  RandomStream rng(seed, RandomPurpose::kTest, step);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = scale * static_cast<float>(rng.Normal());
  return values;
}

// The elements of `values` at `positions`.
inline Candidates Gather(absl::Span<const float> values,
                         std::vector<uint32_t> positions) {
  Candidates found;
  for (const uint32_t p : positions) found.values.push_back(values[p]);
  found.positions = std::move(positions);
  return found;
}

inline CompressedTensor Quantized(absl::Span<const float> values,
                                  const TensorPlan& plan,
                                  const NoiseKey& noise = {}) {
  CompressedTensor out;
  if (plan.dense()) {
    QuantizeDense(values, plan, noise, &out);
  } else {
    const auto n = static_cast<int64_t>(values.size());
    Candidates selected = SelectExact(values, TargetCount(n, plan.density));
    QuantizeSparse(n, plan, noise, &selected, &out);
  }
  return out;
}

// What the receiver adds, as a dense vector.
inline std::vector<float> Decoded(const CompressedTensor& sent) {
  std::vector<float> dense(static_cast<size_t>(sent.size), 0.0f);
  for (int64_t i = 0; i < sent.count(); ++i) {
    dense[sent.Position(i)] = sent.Decode(i);
  }
  return dense;
}

// A GradientCompressor that takes gradients from vectors.
class VectorCompressor {
 public:
  explicit VectorCompressor(std::unique_ptr<GradientCompressor> compressor)
      : compressor_(std::move(compressor)), buffer_(compressor_->size()) {}
  VectorCompressor(int64_t size, const GradientCompressorOptions& options)
      : VectorCompressor(Create(size, options)) {}

  absl::Status Compress(absl::Span<const float> gradient,
                        const TensorPlan& plan, CompressedTensor* out) {
    return Compress(gradient, GradientInput(), plan, out);
  }
  // `input` but for the gradient.
  absl::Status Compress(absl::Span<const float> gradient, GradientInput input,
                        const TensorPlan& plan, CompressedTensor* out) {
    std::copy(gradient.begin(), gradient.end(), buffer_.data());
    input.gradient = &buffer_;
    return compressor_->Compress(input, plan, out);
  }
  void Commit() { compressor_->Commit(); }
  void Rollback() { compressor_->Rollback(); }
  absl::Span<float> momentum() { return compressor_->momentum(); }
  absl::Span<float> residual() { return compressor_->residual(); }
  SelectorState selector_state() const { return compressor_->selector_state(); }
  void set_selector_state(const SelectorState& state) {
    compressor_->set_selector_state(state);
  }

 private:
  static std::unique_ptr<GradientCompressor> Create(
      int64_t size, const GradientCompressorOptions& options) {
    auto made = GradientCompressor::Create(size, options);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  std::unique_ptr<GradientCompressor> compressor_;
  AlignedBuffer<float> buffer_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_COMPRESSION_TEST_UTIL_H_
