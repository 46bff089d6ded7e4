// Whole training steps of the built-in models: images/s against the bound that
// their convolutions set. `rivulet bench model` prints the same.

#include <cstdint>

#include "benchmark/benchmark.h"
#include "models/bench_model.h"

namespace rivulet {
namespace {

void RunModel(benchmark::State& state, const ModelOptions& model) {
  BenchOptions options;
  options.model = model;
  options.runtime.threads = static_cast<int>(state.range(0));
  options.batch = state.range(1);
  options.repetitions = 5;
  for (auto _ : state) {
    const auto result = BenchModel(options);
    if (!result.ok()) {
      state.SkipWithError(result.status().ToString().c_str());
      return;
    }
    state.counters["images/s"] = result->images_per_second;
    state.counters["max"] = result->images_per_second_max;
    state.counters["conv_bound"] = result->conv_only_images_per_second;
    state.counters["forward_ms"] = result->forward_seconds * 1e3;
    state.counters["backward_ms"] = result->backward_seconds * 1e3;
    state.counters["update_ms"] = result->update_seconds * 1e3;
    state.counters["GF/s"] =
        result->images_per_second * result->flops_per_image * 1e-9;
  }
}

void BM_ResNet20(benchmark::State& state) { RunModel(state, ModelOptions{}); }
void BM_ResNet20GroupNorm(benchmark::State& state) {
  ModelOptions model;
  model.norm = NormKind::kGroup;
  RunModel(state, model);
}
void BM_Mlp(benchmark::State& state) {
  ModelOptions model;
  model.name = "mlp";
  RunModel(state, model);
}

BENCHMARK(BM_ResNet20)
    ->Args({1, 128})
    ->Args({2, 128})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ResNet20GroupNorm)
    ->Args({1, 128})
    ->Args({2, 128})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Mlp)->Args({1, 128})->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rivulet
