// How fast a tensor is compressed, coded and decoded. Each benchmark checks its
// result before it is timed.
//
//   compression_benchmark --benchmark_filter=Pass
//
// BM_BareMomentum and BM_BareFeedback are the bounds of BM_Pass with form 1
// (plain momentum) and form 0 (none): the same memory, read and written once,
// with nothing else done. All report bytes of gradient a second. `rivulet bench
// compression` does the same for a whole model.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "compression/frame.h"
#include "compression/gradient_compressor.h"
#include "compression/pass.h"

namespace rivulet {
namespace {

constexpr int kWarmSteps = 30;

// A gradient that differs from step to step: windows of a longer one.
constexpr int64_t kWindows = 4096;

AlignedBuffer<float> Normal(uint64_t seed, int64_t size) {
  RandomStream rng(seed, RandomPurpose::kTest);
  AlignedBuffer<float> values(size);
  for (float& v : values.span()) v = static_cast<float>(rng.Normal());
  return values;
}

// One tensor's compressor and where its gradients come from.
class Rig {
 public:
  Rig(int64_t size, MomentumForm form, const TensorPlan& plan)
      : plan_(plan), all_(Normal(1, size + kWindows)), gradient_(size) {
    GradientCompressorOptions options;
    options.form = form;
    options.mask = form != MomentumForm::kNone;
    auto made = GradientCompressor::Create(size, options);
    RV_CHECK(made.ok()) << made.status();
    compressor_ = *std::move(made);
    for (int64_t step = 0; step < kWarmSteps; ++step) Step();
    RV_CHECK_GT(sent_.count(), 0);
  }

  // Seconds of a step, its commit included. Bringing the gradient, which the
  // backward pass does, is not counted.
  double Step() {
    std::memcpy(gradient_.data(), all_.data() + ++step_ * 61 % kWindows,
                static_cast<size_t>(gradient_.size()) * sizeof(float));
    const auto start = std::chrono::steady_clock::now();
    RV_CHECK(
        compressor_->Compress({.gradient = &gradient_}, plan_, &sent_).ok());
    compressor_->Commit();
    benchmark::DoNotOptimize(sent_.positions.data());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  }

  const CompressedTensor& sent() const { return sent_; }

 private:
  const TensorPlan plan_;
  const AlignedBuffer<float> all_;
  AlignedBuffer<float> gradient_;
  std::unique_ptr<GradientCompressor> compressor_;
  CompressedTensor sent_;
  int64_t step_ = 0;
};

TensorPlan PlanOf(const benchmark::State& state) {
  return {1.0 / static_cast<double>(state.range(1)), 2};
}

void ReportGradientBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float)));
}

void BM_BareMomentum(benchmark::State& state) {
  const int64_t size = state.range(0);
  const auto g = Normal(1, size);
  AlignedBuffer<float> u(size), v(size);
  for (auto _ : state) {
    float* const pu = u.data();
    float* const pv = v.data();
    const float* const pg = g.data();
    for (int64_t i = 0; i < size; ++i) {
      pu[i] = 0.9f * pu[i] + pg[i];
      pv[i] += pu[i];
    }
    benchmark::ClobberMemory();
  }
  RV_CHECK(std::isfinite(v.data()[0]));
  ReportGradientBytes(state);
}

void BM_BareFeedback(benchmark::State& state) {
  const int64_t size = state.range(0);
  const auto g = Normal(1, size);
  AlignedBuffer<float> v(size);
  for (auto _ : state) {
    float* const pv = v.data();
    const float* const pg = g.data();
    for (int64_t i = 0; i < size; ++i) pv[i] += 10.0f * pg[i];
    benchmark::ClobberMemory();
  }
  RV_CHECK(std::isfinite(v.data()[0]));
  ReportGradientBytes(state);
}

// The whole stage: pass, selection, quantization, error feedback, commit.
void BM_Pass(benchmark::State& state) {
  Rig rig(state.range(0),
          state.range(2) == 0 ? MomentumForm::kNone : MomentumForm::kPlain,
          PlanOf(state));
  for (auto _ : state) state.SetIterationTime(rig.Step());
  state.SetLabel(PassTargets().front());
  ReportGradientBytes(state);
}

void BM_Encode(benchmark::State& state) {
  const Rig rig(state.range(0), MomentumForm::kNone, PlanOf(state));
  const CompressedTensor& sent = rig.sent();
  FrameEncoder encoder;
  encoder.Add(0, sent, 0, sent.size);
  const std::string bytes = encoder.Finish();
  const auto decoded = DecodeFrames(bytes, {sent.size});
  RV_CHECK(decoded.ok() && (*decoded)[0].positions == sent.positions);
  for (auto _ : state) {
    encoder.Add(0, sent, 0, sent.size);
    benchmark::DoNotOptimize(encoder.Finish());
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(bytes.size()));
  state.SetItemsProcessed(state.iterations() * sent.count());
}

void BM_Decode(benchmark::State& state) {
  const Rig rig(state.range(0), MomentumForm::kNone, PlanOf(state));
  const CompressedTensor& sent = rig.sent();
  FrameEncoder encoder;
  encoder.Add(0, sent, 0, sent.size);
  const std::string bytes = encoder.Finish();
  const SegmentTable table = {sent.size};
  for (auto _ : state) {
    auto decoded = DecodeFrames(bytes, table);
    RV_CHECK(decoded.ok() && (*decoded)[0].positions == sent.positions);
    benchmark::DoNotOptimize(decoded);
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(bytes.size()));
  state.SetItemsProcessed(state.iterations() * sent.count());
}

// A layer of ResNet-20, one of ResNet-50, and all of it; one element in so many
// is sent.
void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"size", "one_in"})
      ->Args({36864, 1000})
      ->Args({2359296, 1000})
      ->Args({2359296, 100});
}
void SizesAndForms(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"size", "one_in", "form"})->UseManualTime();
  for (const int64_t form : {0, 1}) {
    benchmark->Args({36864, 1000, form})
        ->Args({2359296, 1000, form})
        ->Args({25557032, 1000, form});
  }
}

BENCHMARK(BM_BareMomentum)->ArgName("size")->Arg(36864)->Arg(25557032);
BENCHMARK(BM_BareFeedback)->ArgName("size")->Arg(36864)->Arg(25557032);
BENCHMARK(BM_Pass)->Apply(SizesAndForms);
BENCHMARK(BM_Encode)->Apply(Sizes);
BENCHMARK(BM_Decode)->Apply(Sizes);

}  // namespace
}  // namespace rivulet
