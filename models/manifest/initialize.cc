// Initial weights. Everybody computes them and only a hash is compared, so they
// use nothing but operations that IEEE 754 rounds exactly (+ - * / sqrt): the
// last bit of a library's log or cos differs between machines.

#include <cmath>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "models/manifest/manifest.h"

namespace rivulet {
namespace {

// ln(x) for x in (0, 1), to about 1e-15: with x = m * 2^e and m near 1,
// ln(x) = e ln(2) + 2 artanh((m - 1) / (m + 1)).
double Log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrtHalf = 0.707106781186547524401;
  constexpr int kTerms = 11;  // |z| <= 0.1716, so z^23 is below 1e-17
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // exact; in [0.5, 1)
  if (mantissa < kSqrtHalf) {
    mantissa *= 2;
    --exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1);
  const double z2 = z * z;
  double series = 0;
  for (int k = kTerms; k >= 0; --k) series = series * z2 + 1.0 / (2 * k + 1);
  return exponent * kLn2 + 2 * z * series;
}

// Standard normal numbers by Marsaglia's polar method, which needs no angle.
class PortableNormal {
 public:
  explicit PortableNormal(RandomStream* rng) : rng_(rng) {}

  double Next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    double x, y, s;
    do {
      x = 2 * rng_->UniformDouble() - 1;
      y = 2 * rng_->UniformDouble() - 1;
      s = x * x + y * y;
    } while (s >= 1 || s == 0);
    const double scale = std::sqrt(-2 * Log(s) / s);
    spare_ = y * scale;
    has_spare_ = true;
    return x * scale;
  }

 private:
  RandomStream* const rng_;
  double spare_ = 0;
  bool has_spare_ = false;
};

void FillNormal(double variance, RandomStream* rng, absl::Span<float> values) {
  const double deviation = std::sqrt(variance);
  PortableNormal normal(rng);
  for (float& value : values) {
    value = static_cast<float>(deviation * normal.Next());
  }
}

void FillUniform(double bound, RandomStream* rng, absl::Span<float> values) {
  for (float& value : values) {
    value = static_cast<float>(bound * (2 * rng->UniformDouble() - 1));
  }
}

}  // namespace

void InitializeTensor(const TensorSpec& spec, uint64_t seed, int index,
                      absl::Span<float> values) {
  RV_CHECK_EQ(static_cast<int64_t>(values.size()), spec.num_elements())
      << spec.name;
  RandomStream rng(seed, RandomPurpose::kInitialWeights,
                   static_cast<uint64_t>(index));
  switch (spec.init) {
    case Init::kZero:
      for (float& value : values) value = 0;
      return;
    case Init::kOne:
      for (float& value : values) value = 1;
      return;
    case Init::kKaimingNormalFanOut:
      FillNormal(2.0 / static_cast<double>(spec.fan_out), &rng, values);
      return;
    case Init::kUniformFanIn:
      FillUniform(1.0 / std::sqrt(static_cast<double>(spec.fan_in)), &rng,
                  values);
      return;
  }
  RV_CHECK(false) << "tensor " << spec.name << " has no known initialization";
}

}  // namespace rivulet
