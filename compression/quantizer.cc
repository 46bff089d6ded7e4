#include "compression/quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"

namespace rivulet {
namespace {

constexpr int kLloydIterations = 10;
// Bounds that move by less than this share have settled.
constexpr double kSettled = 1e-3;
// To so many values, at most, magnitudes are fitted.
constexpr size_t kFitSample = 1024;
constexpr int64_t kValuesOfAMagnitude = 8;

ValueCode CodeOf(int bits, bool dense) {
  switch (bits) {
    case 32:
      return ValueCode::kFloat;
    case 16:
      return ValueCode::kLinear16;
    case 8:
      return ValueCode::kLinear8;
    default:
      return dense ? ValueCode::kLinear4 : ValueCode::kBook;
  }
}

// Division and not multiplication by an inverse: the inverse of a tiny step is
// infinite.
int32_t NearestLevel(float value, float step, int32_t max_level) {
  const int32_t level = static_cast<int32_t>(std::lrintf(value / step));
  return std::clamp(level, -max_level, max_level);
}

int32_t RandomLevel(float value, float step, int32_t max_level,
                    RandomStream* random) {
  const float exact = std::fabs(value) / step;
  const float floor = std::floor(exact);
  const int32_t up = random->UniformFloat() < exact - floor ? 1 : 0;
  const int32_t level = std::min(static_cast<int32_t>(floor) + up, max_level);
  return value < 0 ? -level : level;
}

// Rounds to the nearest bfloat16, ties to even; stays finite.
float ToBfloat16(double magnitude) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude));
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1)) & 0xFFFF0000u;
  constexpr uint32_t kLargest = 0x7F7F0000u;
  return std::bit_cast<float>(std::min(rounded, kLargest));
}

// Ascending cells of magnitudes and their means. Cell j has those above
// bounds[j - 1], up to and including bounds[j].
struct Cells {
  std::vector<double> bounds;  // one fewer than cells
  std::vector<double> means;   // negative: nothing is in the cell
};

// The mean magnitude of `values`, not empty; its sums are those of lanes, so
// that compilers may take vectors.
double MeanMagnitude(absl::Span<const float> values) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) sums[j] += std::fabs(values[i + j]);
  }
  double sum = 0;
  for (; i < values.size(); ++i) sum += std::fabs(values[i]);
  for (const double s : sums) sum += s;
  return sum / static_cast<double>(values.size());
}

void ComputeMeans(absl::Span<const float> values, Cells* cells) {
  if (cells->bounds.empty()) {
    cells->means = {MeanMagnitude(values)};
    return;
  }
  std::vector<double> sums(cells->bounds.size() + 1, 0);
  std::vector<int64_t> counts(sums.size(), 0);
  for (const float v : values) {
    const double m = std::fabs(v);
    size_t cell = 0;
    for (const double bound : cells->bounds) cell += m > bound ? 1 : 0;
    sums[cell] += m;
    ++counts[cell];
  }
  cells->means.clear();
  for (size_t c = 0; c < sums.size(); ++c) {
    cells->means.push_back(
        counts[c] > 0 ? sums[c] / static_cast<double>(counts[c]) : -1);
  }
}

void DropEmptyCells(Cells* cells) {
  Cells kept;
  for (size_t c = 0; c < cells->means.size(); ++c) {
    if (cells->means[c] < 0) continue;
    if (!kept.means.empty()) kept.bounds.push_back(cells->bounds[c - 1]);
    kept.means.push_back(cells->means[c]);
  }
  *cells = std::move(kept);
}

// False when they have settled.
bool MoveBoundsBetweenMeans(Cells* cells) {
  bool moved = false;
  for (size_t c = 0; c < cells->bounds.size(); ++c) {
    const double bound = (cells->means[c] + cells->means[c + 1]) / 2;
    moved |= std::fabs(bound - cells->bounds[c]) > kSettled * bound;
    cells->bounds[c] = bound;
  }
  return moved;
}

// All, or about `most` at equal distances.
std::vector<float> EveryNth(absl::Span<const float> values, size_t most) {
  const size_t stride = values.size() / most + 1;
  std::vector<float> sample;
  sample.reserve(values.size() / stride + 1);
  for (size_t i = 0; i < values.size(); i += stride) {
    sample.push_back(values[i]);
  }
  return sample;
}

// Each cell is split at its mean until there are `most`.
Cells LloydMax(absl::Span<const float> values, int most) {
  Cells cells;
  ComputeMeans(values, &cells);
  while (2 * cells.means.size() <= static_cast<size_t>(most)) {
    Cells finer;
    for (size_t c = 0; c < cells.means.size(); ++c) {
      if (c > 0) finer.bounds.push_back(cells.bounds[c - 1]);
      finer.bounds.push_back(cells.means[c]);
    }
    ComputeMeans(values, &finer);
    const size_t before = cells.means.size();
    DropEmptyCells(&finer);
    for (int i = 0; i < kLloydIterations && MoveBoundsBetweenMeans(&finer);
         ++i) {
      ComputeMeans(values, &finer);
      DropEmptyCells(&finer);
    }
    cells = std::move(finer);
    if (cells.means.size() == before) break;  // all equal: nothing to split
  }
  return cells;
}

Cells EqualSteps(absl::Span<const float> values, int most) {
  double smallest = HUGE_VAL;
  for (const float v : values)
    smallest = std::min<double>(smallest, std::fabs(v));
  Cells cells;
  for (int j = 1; j < most; ++j) cells.bounds.push_back((1 + j) * smallest);
  ComputeMeans(values, &cells);
  DropEmptyCells(&cells);
  return cells;
}

float MaxMagnitude(absl::Span<const float> values) {
  float max = 0;
  for (const float v : values) max = std::max(max, std::fabs(v));
  return max;
}

// step, 2 step, ... up to `most` of them, from a step of 5 significant bits.
std::vector<float> EvenBook(float max_magnitude, int most) {
  constexpr uint32_t kBelow = 0xFFFFFu;  // bits of fp32 beyond five
  const float step = max_magnitude / static_cast<float>(most);
  uint32_t bits = (std::bit_cast<uint32_t>(step) + kBelow) & ~kBelow;
  while (
      !std::isfinite(static_cast<float>(most) * std::bit_cast<float>(bits))) {
    bits -= kBelow + 1;
  }
  std::vector<float> book;
  for (int j = 1; j <= most; ++j) {
    book.push_back(static_cast<float>(j) * std::bit_cast<float>(bits));
  }
  return book;
}

int32_t NearestInBook(float value, absl::Span<const float> bounds) {
  const float magnitude = std::fabs(value);
  int32_t level = 0;
  for (const float bound : bounds) level += magnitude > bound ? 1 : 0;
  return value < 0 ? -level : level;
}

// Half-way between each two magnitudes, the first of which is 0.
std::vector<float> BoundsOf(absl::Span<const float> book) {
  std::vector<float> bounds = {book[0] / 2};
  for (size_t j = 0; j + 1 < book.size(); ++j) {
    bounds.push_back(book[j] + (book[j + 1] - book[j]) / 2);
  }
  return bounds;
}

// Keeps what `level_of` gives a level other than 0.
template <typename F>
void KeepSent(Candidates* selected, CompressedTensor* out, F level_of) {
  auto& [positions, values] = *selected;
  out->levels.reserve(positions.size());
  size_t kept = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const int32_t level = level_of(values[i]);
    if (level == 0) continue;
    out->levels.push_back(static_cast<int16_t>(level));
    positions[kept] = positions[i];
    values[kept] = values[i];
    ++kept;
  }
  positions.resize(kept);
  values.resize(kept);
}

void QuantizeByBook(const TensorPlan& plan, RandomStream* random,
                    Candidates* selected, CompressedTensor* out) {
  if (selected->size() == 0) return;
  const int most = static_cast<int>(
      std::clamp<int64_t>(selected->size() / kValuesOfAMagnitude, 1,
                          int64_t{1} << (plan.value_bits - 1)));
  if (plan.rounding == Rounding::kStochastic) {
    out->book = EvenBook(MaxMagnitude(selected->values), most);
    KeepSent(selected, out, [&](float v) {
      return RandomLevel(v, out->book[0], most, random);
    });
    return;
  }
  out->book = FitBook(selected->values, most, plan.level_fit);
  const std::vector<float> bounds = BoundsOf(out->book);
  KeepSent(selected, out, [&](float v) { return NearestInBook(v, bounds); });
}

}  // namespace

bool IsValueBits(int bits) {
  return (bits >= 1 && bits <= 3) || IsLinearBits(bits);
}

bool IsLinearBits(int bits) {
  return bits == 4 || bits == 8 || bits == 16 || bits == 32;
}

int32_t MaxLevel(ValueCode code) {
  switch (code) {
    case ValueCode::kLinear16:
      return 32767;
    case ValueCode::kLinear8:
      return 127;
    case ValueCode::kLinear4:
      return 7;
    default:
      RV_CHECK(false) << "code " << static_cast<int>(code) << " is not linear";
      return 0;
  }
}

uint16_t StepToBits(float step) {
  const uint32_t bits = std::bit_cast<uint32_t>(step);
  RV_CHECK_EQ(bits & 0xFFFFu, 0u) << "step " << step << " is no bfloat16";
  return static_cast<uint16_t>(bits >> 16);
}

float StepFromBits(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float QuantizationStep(float max_magnitude, ValueCode code) {
  const int32_t max_level = MaxLevel(code);
  if (max_magnitude == 0) return 0;
  // The quotient of floats may round down. The product of a float and a level
  // is exact in double, so it tells.
  float step = max_magnitude / static_cast<float>(max_level);
  if (static_cast<double>(step) * max_level < max_magnitude) {
    step = std::nextafterf(step, HUGE_VALF);
  }
  uint32_t step_bits = (std::bit_cast<uint32_t>(step) + 0xFFFFu) & ~0xFFFFu;
  // Magnitudes next to the largest float: the top level must stay finite.
  while (!std::isfinite(static_cast<float>(max_level) *
                        std::bit_cast<float>(step_bits))) {
    step_bits -= 0x10000u;
  }
  return std::bit_cast<float>(step_bits);
}

std::vector<float> FitBook(absl::Span<const float> values, int most,
                           LevelFit fit) {
  RV_CHECK(most >= 1 && most <= kMaxBook) << most;
  Cells cells;
  if (most == 1) {
    ComputeMeans(values, &cells);
  } else if (fit == LevelFit::kSteps) {
    cells = EqualSteps(values, most);
  } else {
    cells = LloydMax(EveryNth(values, kFitSample), most);
    // The cells are those of a sample, the means are of all.
    ComputeMeans(values, &cells);
    DropEmptyCells(&cells);
  }
  std::vector<float> book;
  for (const double mean : cells.means) {
    const float entry = ToBfloat16(mean);
    if (entry > 0 && (book.empty() || entry > book.back())) {
      book.push_back(entry);
    }
  }
  // Magnitudes too small for a bfloat16: the smallest one there is.
  if (book.empty()) book.push_back(StepFromBits(1));
  return book;
}

void QuantizeDense(const ValuesView& values, const TensorPlan& plan,
                   const NoiseKey& noise, CompressedTensor* out) {
  const ValueCode code = CodeOf(plan.value_bits, /*dense=*/true);
  out->Reset(values.size, /*is_dense=*/true, code);
  const size_t size = static_cast<size_t>(values.size);
  if (code == ValueCode::kFloat) {
    out->values.resize(size);
    for (size_t i = 0; i < size; ++i) out->values[i] = values[i];
    return;
  }
  RandomStream random(noise.seed, RandomPurpose::kRounding, noise.step,
                      noise.stream);
  const bool stochastic = plan.rounding == Rounding::kStochastic;
  const int32_t max_level = MaxLevel(code);
  out->levels.resize(size);
  for (size_t begin = 0; begin < size; begin += kQuantizationBlock) {
    const size_t end =
        std::min(size, begin + static_cast<size_t>(kQuantizationBlock));
    float max = 0;
    for (size_t i = begin; i < end; ++i) {
      max = std::max(max, std::fabs(values[i]));
    }
    const float step = QuantizationStep(max, code);
    out->steps.push_back(step);
    if (step == 0) continue;  // levels are zero already
    for (size_t i = begin; i < end; ++i) {
      out->levels[i] = static_cast<int16_t>(
          stochastic ? RandomLevel(values[i], step, max_level, &random)
                     : NearestLevel(values[i], step, max_level));
    }
  }
}

void QuantizeSparse(int64_t size, const TensorPlan& plan, const NoiseKey& noise,
                    Candidates* selected, CompressedTensor* out) {
  const ValueCode code = CodeOf(plan.value_bits, /*dense=*/false);
  out->Reset(size, /*is_dense=*/false, code);
  RandomStream random(noise.seed, RandomPurpose::kRounding, noise.step,
                      noise.stream);
  if (code == ValueCode::kFloat) {
    out->values = selected->values;
  } else if (code == ValueCode::kBook) {
    QuantizeByBook(plan, &random, selected, out);
  } else {
    const float step = QuantizationStep(MaxMagnitude(selected->values), code);
    out->steps.push_back(step);
    const int32_t max_level = MaxLevel(code);
    const bool stochastic = plan.rounding == Rounding::kStochastic;
    KeepSent(selected, out, [&](float v) {
      if (step == 0) return 0;
      return stochastic ? RandomLevel(v, step, max_level, &random)
                        : NearestLevel(v, step, max_level);
    });
  }
  out->positions = selected->positions;
}

}  // namespace rivulet
