#include "data/synthetic.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;

struct Images {
  std::vector<std::vector<uint8_t>> pixels;
  std::vector<int32_t> labels;
};

Images ReadAll(const Dataset& set) {
  Images images;
  std::vector<uint8_t> pixels(static_cast<size_t>(set.shape().size()));
  for (int64_t i = 0; i < set.size(); ++i) {
    const absl::StatusOr<int32_t> label = set.Read(i, absl::MakeSpan(pixels));
    EXPECT_TRUE(label.ok());
    images.labels.push_back(*label);
    images.pixels.push_back(pixels);
  }
  return images;
}

template <typename Center>
int32_t Nearest(const std::vector<uint8_t>& pixels, int64_t classes,
                const Center& center) {
  int32_t nearest = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t c = 0; c < classes; ++c) {
    double distance = 0;
    for (size_t i = 0; i < pixels.size(); ++i) {
      const double d = double{1} * pixels[i] - center(c, i);
      distance += d * d;
    }
    if (distance < least) {
      least = distance;
      nearest = c;
    }
  }
  return nearest;
}

TEST(SyntheticTest, TheLabelIsTheNearestPrototype) {
  for (const ImageShape& shape :
       {ImageShape{3, 32, 32}, ImageShape{1, 28, 28}, ImageShape{1, 8, 8}}) {
    const SyntheticDataset set(
        {.name = "synthetic", .synthetic_train = 200, .synthetic_shape = shape},
        Split::kTrain);
    const Images images = ReadAll(set);
    for (size_t s = 0; s < images.labels.size(); ++s) {
      EXPECT_EQ(Nearest(images.pixels[s], set.num_classes(),
                        [&](int32_t c, size_t i) {
                          return double{1} * set.prototype(c)[i];
                        }),
                images.labels[s])
          << s;
    }
  }
}

// The means of the training images of each class are all that a linear model
// would learn.
TEST(SyntheticTest, WhatIsLearntFromTrainingHoldsForTheTest) {
  const DatasetOptions options{.name = "synthetic",
                               .synthetic_train = 500,
                               .synthetic_test = 300,
                               .synthetic_shape = {1, 16, 16}};
  const SyntheticDataset train(options, Split::kTrain);
  const SyntheticDataset test(options, Split::kTest);
  const Images images = ReadAll(train);
  std::vector<std::vector<double>> means(10, std::vector<double>(256));
  std::vector<int> counts(10);
  for (size_t s = 0; s < images.labels.size(); ++s) {
    const size_t label = static_cast<size_t>(images.labels[s]);
    ++counts[label];
    for (size_t i = 0; i < 256; ++i) means[label][i] += images.pixels[s][i];
  }
  ASSERT_GT(*std::min_element(counts.begin(), counts.end()), 0);
  const Images unseen = ReadAll(test);
  int correct = 0;
  for (size_t s = 0; s < unseen.labels.size(); ++s) {
    correct += Nearest(unseen.pixels[s], 10, [&](int32_t c, size_t i) {
                 return means[c][i] / counts[c];
               }) == unseen.labels[s];
  }
  EXPECT_GT(correct, 0.95 * 300);
}

TEST(SyntheticTest, DependsOnSeedSplitAndIndexAlone) {
  DatasetOptions options{.name = "synthetic",
                         .synthetic_train = 20,
                         .synthetic_test = 20,
                         .synthetic_shape = {1, 8, 8}};
  const Images first = ReadAll(SyntheticDataset(options, Split::kTrain));
  EXPECT_EQ(ReadAll(SyntheticDataset(options, Split::kTrain)).pixels,
            first.pixels);
  EXPECT_NE(ReadAll(SyntheticDataset(options, Split::kTest)).pixels,
            first.pixels);
  for (size_t i = 1; i < first.pixels.size(); ++i) {
    EXPECT_NE(first.pixels[i], first.pixels[0]);
  }
  options.synthetic_seed = 2;
  EXPECT_NE(ReadAll(SyntheticDataset(options, Split::kTrain)).pixels,
            first.pixels);
}

TEST(SyntheticTest, RefusesAnIndexBeyondTheEnd) {
  const SyntheticDataset set({.name = "synthetic", .synthetic_train = 5},
                             Split::kTrain);
  std::vector<uint8_t> pixels(static_cast<size_t>(set.shape().size()));
  EXPECT_THAT(set.Read(5, absl::MakeSpan(pixels)).status(),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(set.Read(-1, absl::MakeSpan(pixels)).status(),
              StatusIs(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace rivulet
