// Positions in a matrix whose rows are sent as unequally often as words are
// used: each element of row r is sent with probability 1 - exp(-a / s(r)^e),
// where s is a random order of the rows and a gives the density. Redrawn for
// each message. For tests and benchmarks of row_coder.h.

#ifndef RIVULET_TESTS_COMPRESSION_ROW_STREAM_H_
#define RIVULET_TESTS_COMPRESSION_ROW_STREAM_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"

namespace rivulet::testing {

class RowStream {
 public:
  RowStream(uint32_t rows, uint32_t columns, double density, double exponent,
            uint64_t seed)
      : columns_(columns),
        chance_(rows),
        rng_(seed, RandomPurpose::kTest, rows, columns) {
    double low = 1e-12, high = 1e6;
    for (int i = 0; i < 100; ++i) {
      const double scale = std::sqrt(low * high);
      double sum = 0;
      for (uint32_t r = 0; r < rows; ++r) {
        chance_[r] = -std::expm1(-scale / std::pow(r + 1, exponent));
        sum += chance_[r];
      }
      (sum > density * rows ? high : low) = scale;
    }
    rng_.Shuffle(absl::MakeSpan(chance_));
  }

  std::vector<uint32_t> Next() {
    std::vector<uint32_t> positions;
    for (size_t r = 0; r < chance_.size(); ++r) {
      const double log_skip = std::log1p(-chance_[r]);
      double column = 0;
      while (true) {
        if (log_skip < 0) {  // otherwise the chance rounds to 0 or 1
          column += std::floor(std::log1p(-rng_.UniformDouble()) / log_skip);
        } else if (chance_[r] < 0.5) {
          break;
        }
        if (column >= columns_) break;
        positions.push_back(static_cast<uint32_t>(r) * columns_ +
                            static_cast<uint32_t>(column));
        ++column;
      }
    }
    return positions;
  }

  // Bits a position of a coder that knows the chances.
  double ConditionalEntropy() const {
    double bits = 0, sent = 0;
    for (const double p : chance_) {
      sent += p;
      if (p > 0 && p < 1) bits -= p * std::log2(p) + (1 - p) * std::log2(1 - p);
    }
    return bits / sent;
  }
  // ... that knows the density alone.
  double Entropy() const {
    double p = 0;
    for (const double c : chance_) p += c / static_cast<double>(chance_.size());
    return -(p * std::log2(p) + (1 - p) * std::log2(1 - p)) / p;
  }

 private:
  uint32_t columns_;
  std::vector<double> chance_;  // of each row
  RandomStream rng_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_COMPRESSION_ROW_STREAM_H_
