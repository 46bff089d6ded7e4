// How fast positions and levels are coded and decoded, on one thread. Each
// benchmark checks its result before it is timed, and reports positions or
// levels a second (items_per_second) and bits of code for each.
//
//   coder_benchmark --benchmark_filter=Rice

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "compression/level_coder.h"
#include "compression/rice.h"
#include "compression/row_coder.h"
#include "tests/compression/row_stream.h"

namespace rivulet {
namespace {

// `count` random positions, one in `one_in` elements on average.
std::vector<uint32_t> RandomPositions(int64_t count, int64_t one_in) {
  RandomStream rng(1, RandomPurpose::kTest, static_cast<uint64_t>(one_in));
  const double log_skip = std::log1p(-1 / static_cast<double>(one_in));
  std::vector<uint32_t> positions;
  uint32_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    next += static_cast<uint32_t>(std::log1p(-rng.UniformDouble()) / log_skip);
    positions.push_back(next++);
  }
  return positions;
}

void ReportCode(benchmark::State& state, size_t num_bytes, size_t count) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(count));
  state.counters["bits"] =
      8 * static_cast<double>(num_bytes) / static_cast<double>(count);
}

constexpr int64_t kCount = 25000;

void BM_RiceSize(benchmark::State& state) {
  const auto positions = RandomPositions(kCount, state.range(0));
  const RiceSize best = BestRice(positions, 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(BestRice(positions, 0));
  }
  ReportCode(state, static_cast<size_t>(best.num_bytes), positions.size());
}

void BM_RiceEncode(benchmark::State& state) {
  const auto positions = RandomPositions(kCount, state.range(0));
  const RiceSize best = BestRice(positions, 0);
  std::string bytes;
  AppendRice(positions, 0, best.parameter, &bytes);
  RV_CHECK_EQ(static_cast<int64_t>(bytes.size()), best.num_bytes);
  for (auto _ : state) {
    bytes.clear();
    AppendRice(positions, 0, best.parameter, &bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  ReportCode(state, bytes.size(), positions.size());
}

void BM_RiceDecode(benchmark::State& state) {
  const auto positions = RandomPositions(kCount, state.range(0));
  const RiceSize best = BestRice(positions, 0);
  std::string bytes;
  AppendRice(positions, 0, best.parameter, &bytes);
  const int64_t size = int64_t{positions.back()} + 1;
  std::vector<uint32_t> decoded(positions.size());
  size_t consumed = 0;
  RV_CHECK(DecodeRice(bytes, best.parameter, size, absl::MakeSpan(decoded),
                      &consumed)
               .ok() &&
           decoded == positions);
  for (auto _ : state) {
    RV_CHECK(DecodeRice(bytes, best.parameter, size, absl::MakeSpan(decoded),
                        &consumed)
                 .ok());
    benchmark::DoNotOptimize(decoded.data());
  }
  ReportCode(state, bytes.size(), positions.size());
}

void Densities(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("one_in")->Arg(1000)->Arg(100)->Arg(20);
}

BENCHMARK(BM_RiceSize)->Apply(Densities);
BENCHMARK(BM_RiceEncode)->Apply(Densities);
BENCHMARK(BM_RiceDecode)->Apply(Densities);

// Levels whose indices are halved in number from one to the next.
std::vector<int8_t> RandomLevels(int book) {
  RandomStream rng(2, RandomPurpose::kTest);
  std::vector<int8_t> levels(static_cast<size_t>(kCount));
  for (int8_t& level : levels) {
    int index = 0;
    while (index + 1 < book && rng.UniformInt(2) == 0) ++index;
    level = static_cast<int8_t>(rng.UniformInt(2) == 0 ? 1 + index : ~index);
  }
  return levels;
}

LevelMode ModeOf(const benchmark::State& state) {
  return state.range(1) != 0 ? LevelMode::kAdaptive : LevelMode::kPacked;
}

void BM_LevelsEncode(benchmark::State& state) {
  const int book = static_cast<int>(state.range(0));
  const auto levels = RandomLevels(book);
  std::string bytes;
  AppendLevels(levels, book, ModeOf(state), &bytes);
  for (auto _ : state) {
    bytes.clear();
    AppendLevels(levels, book, ModeOf(state), &bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  ReportCode(state, bytes.size(), levels.size());
}

void BM_LevelsDecode(benchmark::State& state) {
  const int book = static_cast<int>(state.range(0));
  const auto levels = RandomLevels(book);
  std::string bytes;
  AppendLevels(levels, book, ModeOf(state), &bytes);
  std::vector<int8_t> decoded(levels.size());
  size_t consumed = 0;
  RV_CHECK(DecodeLevels(bytes, book, ModeOf(state), absl::MakeSpan(decoded),
                        &consumed)
               .ok() &&
           decoded == levels);
  for (auto _ : state) {
    RV_CHECK(DecodeLevels(bytes, book, ModeOf(state), absl::MakeSpan(decoded),
                          &consumed)
                 .ok());
    benchmark::DoNotOptimize(decoded.data());
  }
  ReportCode(state, bytes.size(), levels.size());
}

void Books(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"book", "adaptive"});
  for (const int64_t adaptive : {0, 1}) {
    for (const int64_t book : {1, 2, 4, 8}) {
      if (book > 1 || adaptive == 0) benchmark->Args({book, adaptive});
    }
  }
}

BENCHMARK(BM_LevelsEncode)->Apply(Books);
BENCHMARK(BM_LevelsDecode)->Apply(Books);

// 10,000 rows, of which one is sent as often as Zipf's law says (exponent 1),
// or all alike (0), after 300 messages.
constexpr int64_t kRows = 10000;
constexpr int kMessages = 300;

struct Rows {
  explicit Rows(const benchmark::State& state)
      : stream(kRows, static_cast<uint32_t>(state.range(0)),
               1 / static_cast<double>(state.range(1)),
               static_cast<double>(state.range(2)), /*seed=*/1),
        context(kRows * state.range(0), state.range(0)) {
    for (int i = 0; i < kMessages; ++i) context.Update(stream.Next());
    positions = stream.Next();
    AppendRows(context, positions, &bytes);
  }

  void Report(benchmark::State& state) const {
    ReportCode(state, bytes.size(), positions.size());
    state.counters["iid"] = stream.Entropy();
    state.counters["conditional"] = stream.ConditionalEntropy();
  }

  testing::RowStream stream;
  RowContext context;
  std::vector<uint32_t> positions;
  std::string bytes;
};

void BM_RowsEncode(benchmark::State& state) {
  Rows rows(state);
  std::string bytes;
  for (auto _ : state) {
    bytes.clear();
    AppendRows(rows.context, rows.positions, &bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  RV_CHECK(bytes == rows.bytes);
  rows.Report(state);
}

void BM_RowsDecode(benchmark::State& state) {
  const Rows rows(state);
  std::vector<uint32_t> decoded(rows.positions.size());
  size_t consumed = 0;
  RV_CHECK(
      DecodeRows(rows.context, rows.bytes, absl::MakeSpan(decoded), &consumed)
          .ok() &&
      decoded == rows.positions);
  for (auto _ : state) {
    RV_CHECK(
        DecodeRows(rows.context, rows.bytes, absl::MakeSpan(decoded), &consumed)
            .ok());
    benchmark::DoNotOptimize(decoded.data());
  }
  rows.Report(state);
}

// What both ends do besides, once a message; its items are rows.
void BM_RowsUpdate(benchmark::State& state) {
  Rows rows(state);
  for (auto _ : state) {
    rows.context.Update(rows.positions);
  }
  RV_CHECK_EQ(rows.context.version(),
              static_cast<uint64_t>(kMessages + state.iterations()));
  state.SetItemsProcessed(state.iterations() * kRows);
}

void Matrices(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"columns", "one_in", "exponent"});
  for (const int64_t columns : {64, 256}) {
    for (const int64_t one_in : {1000, 100}) {
      for (const int64_t exponent : {1, 0}) {
        benchmark->Args({columns, one_in, exponent});
      }
    }
  }
}

BENCHMARK(BM_RowsEncode)->Apply(Matrices);
BENCHMARK(BM_RowsDecode)->Apply(Matrices);
BENCHMARK(BM_RowsUpdate)->Apply(Matrices);

}  // namespace
}  // namespace rivulet
