#include "compression/bench/bench_compression.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "compression/bench/published_models.h"
#include "compression/frame.h"
#include "compression/gradient_compressor.h"
#include "compression/pass.h"
#include "compression/rice.h"
#include "compression/segment_table.h"

namespace rivulet {
namespace {

constexpr double kMomentum = 0.9;
constexpr int64_t kPool = int64_t{1}
                          << 22;  // values that gradients are cut from
constexpr int kTurns = 8;         // of small tensors, one a step
constexpr uint64_t kSeed = 1;

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> values) {
  RV_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Keeps the compiler from leaving out a loop whose result nobody reads.
void Use(const float* p) { asm volatile("" : : "r"(p) : "memory"); }

// The bound must have what the pass has: the processor's vectors.
#if defined(__x86_64__)
#define RV_BEST_VECTORS \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RV_BEST_VECTORS
#endif

RV_BEST_VECTORS void BareMomentum(const float* __restrict g,
                                  float* __restrict u, float* __restrict v,
                                  int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    u[i] = static_cast<float>(kMomentum) * u[i] + g[i];
    v[i] += u[i];
  }
}

RV_BEST_VECTORS void BareFeedback(const float* __restrict g,
                                  float* __restrict v, int64_t size) {
  for (int64_t i = 0; i < size; ++i) v[i] += 10.0f * g[i];
}

AlignedBuffer<float> MakePool(absl::Span<const float> samples) {
  RandomStream rng(kSeed, RandomPurpose::kTest);
  AlignedBuffer<float> pool(kPool);
  for (float& x : pool.span()) {
    if (!samples.empty()) {
      x = samples[rng.UniformInt(static_cast<uint32_t>(samples.size()))];
      continue;
    }
    double squares = 0;
    for (int i = 0; i < 3; ++i) squares += std::pow(rng.Normal(), 2);
    x = static_cast<float>(rng.Normal() / std::sqrt(squares / 3 + 1e-6));
  }
  return pool;
}

// The gradients of a step: pieces of the pool, as large as fit.
void Refill(const AlignedBuffer<float>& pool, int64_t step,
            std::vector<AlignedBuffer<float>>* gradients) {
  for (size_t i = 0; i < gradients->size(); ++i) {
    const absl::Span<float> g = (*gradients)[i].span();
    size_t filled = 0;
    uint64_t from = static_cast<uint64_t>(step) * 7919 * 61 + i * 104729;
    while (filled < g.size()) {
      const size_t at = from % static_cast<size_t>(kPool);
      const size_t count =
          std::min(g.size() - filled, static_cast<size_t>(kPool) - at);
      std::memcpy(g.data() + filled, pool.data() + at, count * sizeof(float));
      filled += count;
      from = 17 * filled;
    }
  }
}

// Compressors of a whole model and where their gradients come from.
class ModelRig {
 public:
  struct Setting {
    MomentumForm form = MomentumForm::kNone;
    TensorPlan large;
    TensorPlan small = {1.0, 8};
    bool small_take_turns = true;
    int threads = 1;
  };

  ModelRig(const PublishedModel& model, const Setting& setting,
           const AlignedBuffer<float>* pool)
      : setting_(setting), pool_(pool), encoder_(&table_) {
    std::vector<SegmentTable::Info> infos;
    int64_t small_before = 0;
    for (const PublishedTensor& t : model.tensors) {
      GradientCompressorOptions options;
      options.momentum = kMomentum;
      options.form = setting.form;
      options.mask = setting.form != MomentumForm::kNone;
      if (setting.form == MomentumForm::kNone) {
        options.gain = 1 / (1 - kMomentum);
      }
      options.threads = setting.threads;
      auto made = GradientCompressor::Create(t.size, options);
      RV_CHECK(made.ok()) << made.status();
      compressors_.push_back(*std::move(made));
      gradients_.emplace_back(t.size);
      infos.push_back({t.size, t.small});
      turns_.push_back(
          t.small ? TurnOf(small_before, t.size, model.num_small(), kTurns)
                  : 0);
      if (t.small) small_before += t.size;
    }
    table_ = SegmentTable(std::move(infos));
    sent_.resize(model.tensors.size());
    small_.reserve(model.tensors.size());
    for (const PublishedTensor& t : model.tensors) small_.push_back(t.small);
  }

  struct Seconds {
    double pass = 0;
    double frames = 0;
  };

  // One step; the gradients' arrival is not timed. frame() is its frame.
  Seconds Step() {
    Refill(*pool_, step_, &gradients_);
    // Few looks at the clock: on a virtual machine each may cost a microsecond.
    const double start = Now();
    for (size_t i = compressors_.size(); i-- > 0;) {
      RV_CHECK(
          compressors_[i]
              ->Compress({.gradient = &gradients_[i]}, PlanOf(i), &sent_[i])
              .ok());
      compressors_[i]->Commit();
    }
    const double compressed = Now();
    for (size_t i = compressors_.size(); i-- > 0;) {
      if (sent_[i].count() == 0) continue;
      encoder_.Add(static_cast<uint32_t>(i), sent_[i], 0, sent_[i].size);
    }
    frame_ = encoder_.Finish();
    const Seconds seconds = {.pass = compressed - start,
                             .frames = Now() - compressed};
    sent_values_ = 0;
    for (const CompressedTensor& sent : sent_) sent_values_ += sent.count();
    ++step_;
    return seconds;
  }

  const std::string& frame() const { return frame_; }
  const SegmentTable& table() const { return table_; }
  int64_t sent_values() const { return sent_values_; }

 private:
  TensorPlan PlanOf(size_t i) const {
    if (!small_[i]) return setting_.large;
    TensorPlan plan = setting_.small;
    if (setting_.small_take_turns && step_ % kTurns != turns_[i]) {
      plan.density = 0;
    }
    return plan;
  }

  const Setting setting_;
  const AlignedBuffer<float>* const pool_;
  std::vector<std::unique_ptr<GradientCompressor>> compressors_;
  std::vector<AlignedBuffer<float>> gradients_;
  std::vector<int64_t> turns_;
  std::vector<bool> small_;
  SegmentTable table_;
  FrameEncoder encoder_;
  std::vector<CompressedTensor> sent_;  // of the step, by tensor
  std::string frame_;
  int64_t sent_values_ = 0;
  int64_t step_ = 0;
};

// The bare loops over arrays of the same sizes, whose gradients arrive in the
// same way.
class BareLoops {
 public:
  BareLoops(const PublishedModel& model, const AlignedBuffer<float>* pool)
      : pool_(pool) {
    for (const PublishedTensor& t : model.tensors) {
      g_.emplace_back(t.size);
      u_.emplace_back(t.size);
      v_.emplace_back(t.size);
    }
  }

  double Momentum(int threads) {
    return Time(threads, [this](size_t t, int64_t begin, int64_t end) {
      BareMomentum(g_[t].data() + begin, u_[t].data() + begin,
                   v_[t].data() + begin, end - begin);
      Use(v_[t].data());
    });
  }

  double Feedback(int threads) {
    return Time(threads, [this](size_t t, int64_t begin, int64_t end) {
      BareFeedback(g_[t].data() + begin, v_[t].data() + begin, end - begin);
      Use(v_[t].data());
    });
  }

  double Copy() {
    return Time(1, [this](size_t t, int64_t begin, int64_t end) {
      std::memcpy(u_[t].data() + begin, g_[t].data() + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
      Use(u_[t].data());
    });
  }

 private:
  template <typename F>
  double Time(int threads, F loop) {
    Refill(*pool_, ++step_, &g_);
    const double start = Now();
    for (size_t t = 0; t < g_.size(); ++t) {
      const int64_t size = g_[t].size();
      if (threads == 1) {
        loop(t, 0, size);
        continue;
      }
#pragma omp parallel for schedule(static, 1) num_threads(threads)
      for (int p = 0; p < threads; ++p) {
        loop(t, size * p / threads, size * (p + 1) / threads);
      }
    }
    return Now() - start;
  }

  const AlignedBuffer<float>* const pool_;
  std::vector<AlignedBuffer<float>> g_, u_, v_;
  int64_t step_ = 0;
};

ModelRig::Setting SettingOf(const CompressionBenchOptions& options,
                            MomentumForm form, int threads) {
  ModelRig::Setting setting;
  setting.form = form;
  setting.large = {options.density, options.value_bits};
  setting.threads = threads;
  return setting;
}

CompressionTimes MeasureTimes(const PublishedModel& model,
                              const CompressionBenchOptions& options,
                              const AlignedBuffer<float>& pool, BareLoops* bare,
                              int threads) {
  ModelRig feedback(model, SettingOf(options, MomentumForm::kNone, threads),
                    &pool);
  ModelRig momentum(model, SettingOf(options, MomentumForm::kNesterov, threads),
                    &pool);
  for (int i = 0; i < options.warm_up_steps; ++i) {
    feedback.Step();
    momentum.Step();
  }
  std::vector<double> bounds[2], passes[2], frames;
  for (int i = 0; i < options.repetitions; ++i) {
    bounds[0].push_back(bare->Feedback(threads));
    const ModelRig::Seconds f = feedback.Step();
    passes[0].push_back(f.pass);
    frames.push_back(f.frames);
    bounds[1].push_back(bare->Momentum(threads));
    passes[1].push_back(momentum.Step().pass);
  }
  CompressionTimes times;
  times.feedback_bound = Median(bounds[0]);
  times.momentum_bound = Median(bounds[1]);
  times.feedback_pass = Median(passes[0]);
  times.momentum_pass = Median(passes[1]);
  times.frames = Median(frames);
  return times;
}

// The frame of a step decodes to as many values as were sent.
absl::Status CheckFrame(const ModelRig& rig) {
  auto updates = DecodeFrames(rig.frame(), rig.table());
  if (!updates.ok()) return Annotate(updates.status(), "a frame of one's own");
  int64_t values = 0;
  for (const SegmentUpdate& u : *updates) {
    values += static_cast<int64_t>(u.values.size());
  }
  if (values == rig.sent_values()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a frame of ", rig.sent_values(),
                                          " values decodes to ", values));
}

// Mean bytes of a push over a round of turns, once residuals have built up.
absl::StatusOr<int64_t> PushBytes(const PublishedModel& model,
                                  const ModelRig::Setting& setting,
                                  int warm_up_steps,
                                  const AlignedBuffer<float>& pool) {
  ModelRig rig(model, setting, &pool);
  for (int i = 0; i < warm_up_steps; ++i) rig.Step();
  int64_t bytes = 0;
  for (int i = 0; i < kTurns; ++i) {
    rig.Step();
    RV_RETURN_IF_ERROR(CheckFrame(rig));
    bytes += static_cast<int64_t>(rig.frame().size());
  }
  return bytes / kTurns;
}

std::vector<uint32_t> RandomPositions(int64_t size, double density) {
  RandomStream rng(kSeed, RandomPurpose::kTest, 1);
  std::vector<uint32_t> positions;
  for (int64_t i = 0; i < size; ++i) {
    if (rng.UniformDouble() < density) {
      positions.push_back(static_cast<uint32_t>(i));
    }
  }
  return positions;
}

double EntropyOfAPosition(double density) {
  const double p = density;
  return (-p * std::log2(p) - (1 - p) * std::log2(1 - p)) / p;
}

absl::Status MeasureCoder(int repetitions, CompressionBenchResult* result) {
  constexpr int64_t kSize = int64_t{1} << 24;
  for (const double density : {0.001, 0.0025, 0.01, 0.05}) {
    const auto positions = RandomPositions(kSize, density);
    const RiceSize best = BestRice(positions, 0);
    result->position_bits.push_back({density,
                                     8.0 * static_cast<double>(best.num_bytes) /
                                         static_cast<double>(positions.size()),
                                     EntropyOfAPosition(density)});
    if (density != 0.01) continue;
    std::vector<double> encode, decode;
    std::string bytes;
    std::vector<uint32_t> decoded;
    for (int i = 0; i < repetitions; ++i) {
      bytes.clear();
      const double start = Now();
      AppendRice(positions, 0, best.parameter, &bytes);
      const double encoded = Now();
      size_t consumed = 0;
      RV_RETURN_IF_ERROR(DecodeRice(bytes, positions.size(), best.parameter,
                                    kSize, &decoded, &consumed));
      encode.push_back(encoded - start);
      decode.push_back(Now() - encoded);
      if (decoded != positions) {
        return absl::InternalError("positions do not decode to themselves");
      }
    }
    const double millions = static_cast<double>(positions.size()) * 1e-6;
    result->encode_mpos_per_s = millions / Median(encode);
    result->decode_mpos_per_s = millions / Median(decode);
  }
  return absl::OkStatus();
}

// 64 pushes to one shard that owns everything.
absl::Status MeasureDecodeAdd(const PublishedModel& model,
                              const CompressionBenchOptions& options,
                              const AlignedBuffer<float>& pool,
                              CompressionBenchResult* result) {
  constexpr int kPushes = 64;
  ModelRig rig(model, SettingOf(options, MomentumForm::kNone, 1), &pool);
  for (int i = 0; i < options.warm_up_steps; ++i) rig.Step();
  std::vector<std::string> frames;
  frames.reserve(kPushes);
  int64_t entries = 0;
  for (int i = 0; i < kPushes; ++i) {
    rig.Step();
    frames.push_back(rig.frame());
    entries += rig.sent_values();
  }
  std::vector<AlignedBuffer<float>> sums;
  sums.reserve(model.tensors.size());
  for (const PublishedTensor& t : model.tensors) sums.emplace_back(t.size);
  const double start = Now();
  for (const std::string& frame : frames) {
    RV_ASSIGN_OR_RETURN(const std::vector<SegmentUpdate> updates,
                        DecodeFrames(frame, rig.table()));
    for (const SegmentUpdate& u : updates) {
      u.AddTo(1.0f / kPushes, sums[u.segment].span());
    }
  }
  const double seconds = Now() - start;
  result->decode_add_mentries_per_s =
      static_cast<double>(entries) * 1e-6 / seconds;
  result->decode_add_gb_per_s =
      4e-9 * static_cast<double>(model.num_parameters()) * kPushes / seconds;
  return absl::OkStatus();
}

// Tensors that stay in the second-level cache, gradient and all.
double InCacheGigabytes(const CompressionBenchOptions& options,
                        const AlignedBuffer<float>& pool) {
  PublishedModel model;
  constexpr int64_t kElements = 16384;
  constexpr int kSteps = 200;
  model.tensors.push_back({kElements, false});
  ModelRig rig(model, SettingOf(options, MomentumForm::kNone, 1), &pool);
  for (int i = 0; i < kSteps; ++i) rig.Step();
  std::vector<double> seconds;
  seconds.reserve(kSteps);
  for (int i = 0; i < kSteps; ++i) seconds.push_back(rig.Step().pass);
  return 4e-9 * kElements / Median(seconds);
}

absl::Status MeasureSizes(const CompressionBenchOptions& options,
                          const AlignedBuffer<float>& pool,
                          CompressionBenchResult* result) {
  constexpr int kWarmUp = 64;  // thresholds settle within some steps
  const PublishedModel resnet = ResNet50();
  ModelRig::Setting setting = SettingOf(options, MomentumForm::kNone, 1);
  RV_ASSIGN_OR_RETURN(result->resnet50_push_bytes,
                      PushBytes(resnet, setting, kWarmUp, pool));
  ModelRig::Setting pull = setting;
  pull.large.density = std::min(1.0, 2 * options.density);
  RV_ASSIGN_OR_RETURN(result->resnet50_pull_bytes,
                      PushBytes(resnet, pull, kWarmUp, pool));
  struct Variant {
    const char* name;
    int bits;
    TensorPlan small;
    bool turns;
  };
  for (const Variant& v :
       {Variant{"8 bits, small 8 bits whole", 8, {1.0, 8}, false},
        Variant{"2 bits, small 8 bits whole", 2, {1.0, 8}, false},
        Variant{"1 bit, small 8 bits in turns", 1, {1.0, 8}, true},
        Variant{"1 bit, small 4 bits in turns", 1, {1.0, 4}, true},
        Variant{"1 bit, small sparse at 2 %", 1, {0.02, 1}, false}}) {
    ModelRig::Setting s = setting;
    s.large.value_bits = v.bits;
    s.small = v.small;
    s.small_take_turns = v.turns;
    SizeFigure figure;
    figure.name = absl::StrCat("ResNet-50 push, ", v.name);
    RV_ASSIGN_OR_RETURN(figure.bytes, PushBytes(resnet, s, kWarmUp, pool));
    result->sizes.push_back(std::move(figure));
  }
  RV_ASSIGN_OR_RETURN(result->ptb_lstm_push_bytes,
                      PushBytes(PtbLstm(), setting, kWarmUp, pool));
  SizeFigure cifar;
  cifar.name = "ResNet-20 push";
  RV_ASSIGN_OR_RETURN(cifar.bytes,
                      PushBytes(CifarResNet(20), setting, 10 * kWarmUp, pool));
  result->sizes.push_back(std::move(cifar));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompressionBenchResult> BenchCompression(
    const CompressionBenchOptions& options) {
  const TensorPlan plan{options.density, options.value_bits};
  RV_RETURN_IF_ERROR(plan.Validate());
  if (plan.dense() || plan.silent() || options.repetitions < 1 ||
      options.warm_up_steps < 1 || options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bench: density ", options.density,
        " must be between 0 and 1; repetitions ", options.repetitions,
        ", warm-up steps ", options.warm_up_steps, " and threads ",
        options.threads, " at least 1"));
  }
  const PublishedModel model = ResNet50();
  const AlignedBuffer<float> pool = MakePool(options.samples);
  CompressionBenchResult result;
  result.target = PassTargets().front();
  result.elements = model.num_parameters();
  RV_RETURN_IF_ERROR(MeasureSizes(options, pool, &result));
  {
    BareLoops bare(model, &pool);
    bare.Copy();  // touches the memory
    std::vector<double> copies;
    copies.reserve(static_cast<size_t>(options.repetitions));
    for (int i = 0; i < options.repetitions; ++i) copies.push_back(bare.Copy());
    result.copy_gb_per_s =
        4e-9 * static_cast<double>(result.elements) / Median(copies);
    result.one_thread = MeasureTimes(model, options, pool, &bare, 1);
    if (options.threads > 1) {
      result.more_threads =
          MeasureTimes(model, options, pool, &bare, options.threads);
    }
  }
  result.in_cache_gb_per_s = InCacheGigabytes(options, pool);
  RV_RETURN_IF_ERROR(MeasureCoder(options.repetitions, &result));
  RV_RETURN_IF_ERROR(MeasureDecodeAdd(model, options, pool, &result));
  return result;
}

}  // namespace rivulet
