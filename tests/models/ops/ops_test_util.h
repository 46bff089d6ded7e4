// What the tests of operations share: random values and gradients by central
// differences.

#ifndef RIVULET_TESTS_MODELS_OPS_OPS_TEST_UTIL_H_
#define RIVULET_TESTS_MODELS_OPS_OPS_TEST_UTIL_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rivulet::testing {

template <typename T>
std::vector<T> RandomValues(uint64_t seed, int64_t size) {
  RandomStream rng(seed, RandomPurpose::kTest);
  std::vector<T> values(size);
  for (T& v : values) v = static_cast<T>(rng.Normal());
  return values;
}

inline double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Expects every entry of `gradient` to be the derivative of `loss` by the same
// entry of `values`, which is moved by +-1e-5 and put back. The truncation
// error is about 1e-10 and rounding 1e-11 / 1e-5 for losses of order 10.
inline void ExpectGradient(const std::string& what, std::vector<double>& values,
                           const std::vector<double>& gradient,
                           const std::function<double()>& loss) {
  ASSERT_EQ(values.size(), gradient.size()) << what;
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double kept = values[i];
    values[i] = kept + kStep;
    const double above = loss();
    values[i] = kept - kStep;
    const double below = loss();
    values[i] = kept;
    const double numeric = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient[i], numeric, 1e-6 + 1e-6 * std::abs(numeric))
        << what << "[" << i << "]";
  }
}

// Expects |a - b| <= absolute + relative * |b| everywhere.
template <typename T>
void ExpectClose(const std::string& what, const std::vector<T>& actual,
                 const std::vector<T>& expected, double absolute,
                 double relative) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i],
                absolute + relative * std::abs(expected[i]))
        << what << "[" << i << "]";
  }
}

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_MODELS_OPS_OPS_TEST_UTIL_H_
