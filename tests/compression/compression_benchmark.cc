// How fast a tensor is compressed, coded and decoded. Each benchmark checks its
// result before it is timed.
//
//   compression_benchmark --benchmark_filter=Pass
//
// BM_BareLoop is the bound of BM_Pass: the momentum update alone, in place
// (u = m u + g; v += u), which must read g, u, v and write u, v: 20 bytes an
// element. Both report bytes/s for those 20 bytes.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "compression/frame.h"
#include "compression/gradient_compressor.h"
#include "compression/pass.h"

namespace rivulet {
namespace {

constexpr int kWarmSteps = 30;
constexpr int64_t kBytesPerElement = 20;

std::vector<float> Gradient(uint64_t seed, int64_t size) {
  RandomStream rng(seed, RandomPurpose::kTest);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& v : values) v = static_cast<float>(rng.Normal());
  return values;
}

// A gradient that differs from step to step at no cost: windows of a longer
// one.
constexpr int64_t kWindows = 4096;
absl::Span<const float> GradientOfStep(absl::Span<const float> all,
                                       int64_t step) {
  return all.subspan(static_cast<size_t>(step * 61 % kWindows),
                     all.size() - kWindows);
}

// A compressor of plain momentum after some steps, so that its threshold and
// residual are those of a run. `all` is kWindows longer than the tensor.
std::unique_ptr<GradientCompressor> WarmCompressor(absl::Span<const float> all,
                                                   const TensorPlan& plan,
                                                   CompressedTensor* sent) {
  GradientCompressorOptions options;
  options.form = MomentumForm::kPlain;
  auto compressor = GradientCompressor::Create(
      static_cast<int64_t>(all.size()) - kWindows, options);
  RV_CHECK(compressor.ok()) << compressor.status();
  for (int64_t step = 0; step < kWarmSteps; ++step) {
    RV_CHECK(
        (*compressor)->Compress(GradientOfStep(all, step), plan, sent).ok());
    (*compressor)->Commit();
  }
  return *std::move(compressor);
}

TensorPlan PlanOf(const benchmark::State& state) {
  return {1.0 / static_cast<double>(state.range(1)), 8};
}

void BM_BareLoop(benchmark::State& state) {
  const size_t size = static_cast<size_t>(state.range(0));
  const auto g = Gradient(1, state.range(0));
  std::vector<float> u(size, 0.0f), v(size, 0.0f);
  for (auto _ : state) {
    for (size_t i = 0; i < size; ++i) {
      u[i] = 0.9f * u[i] + g[i];
      v[i] += u[i];
    }
    benchmark::DoNotOptimize(v.data());
    benchmark::ClobberMemory();
  }
  RV_CHECK(std::isfinite(v[0]));
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          kBytesPerElement);
}

// The whole stage: pass, selection, quantization, error feedback, commit.
void BM_Pass(benchmark::State& state) {
  const auto all = Gradient(1, state.range(0) + kWindows);
  CompressedTensor sent;
  auto compressor = WarmCompressor(all, PlanOf(state), &sent);
  RV_CHECK_GT(sent.count(), 0);
  int64_t step = kWarmSteps;
  int64_t refreshes = 0;
  for (auto _ : state) {
    RV_CHECK(
        compressor->Compress(GradientOfStep(all, ++step), PlanOf(state), &sent)
            .ok());
    compressor->Commit();
    benchmark::DoNotOptimize(sent.positions.data());
    refreshes += compressor->selector_state().steps_since_refresh == 0 ? 1 : 0;
  }
  state.counters["refreshes"] = benchmark::Counter(
      static_cast<double>(refreshes), benchmark::Counter::kAvgIterations);
  state.SetLabel(PassTargets().front());
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          kBytesPerElement);
}

void BM_Encode(benchmark::State& state) {
  const auto all = Gradient(1, state.range(0) + kWindows);
  CompressedTensor sent;
  WarmCompressor(all, PlanOf(state), &sent);
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
  const auto all = Gradient(1, state.range(0) + kWindows);
  CompressedTensor sent;
  WarmCompressor(all, PlanOf(state), &sent);
  FrameEncoder encoder;
  encoder.Add(0, sent, 0, sent.size);
  const std::string bytes = encoder.Finish();
  const int64_t table[] = {sent.size};
  for (auto _ : state) {
    auto decoded = DecodeFrames(bytes, table);
    RV_CHECK(decoded.ok() && (*decoded)[0].positions == sent.positions);
    benchmark::DoNotOptimize(decoded);
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(bytes.size()));
  state.SetItemsProcessed(state.iterations() * sent.count());
}

// A layer of ResNet-20 and one of ResNet-50; one element in so many is sent.
void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"size", "one_in"})
      ->Args({36864, 1000})
      ->Args({2359296, 1000})
      ->Args({2359296, 100});
}

BENCHMARK(BM_BareLoop)->ArgName("size")->Arg(36864)->Arg(2359296);
BENCHMARK(BM_Pass)->Apply(Sizes);
BENCHMARK(BM_Encode)->Apply(Sizes);
BENCHMARK(BM_Decode)->Apply(Sizes);

}  // namespace
}  // namespace rivulet
