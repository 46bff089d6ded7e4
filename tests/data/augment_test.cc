#include "data/augment.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"
#include "data/image_set.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

constexpr ImageShape kShape = {.channels = 2, .height = 5, .width = 7};

InMemoryDataset Example() {
  return InMemoryDataset({.shape = kShape,
                          .num_classes = 1,
                          .mean = {0.5f, 0.25f},
                          .stddev = {0.25f, 0.125f},
                          .pixels = {},
                          .labels = {}});
}

// Pixel by pixel from the definition.
float Expected(const std::vector<uint8_t>& pixels, const Placement& placement,
               int64_t c, int64_t y, int64_t x) {
  if (placement.mirrored) x = kShape.width - 1 - x;
  y += placement.top;
  x += placement.left;
  uint8_t byte = 0;
  if (y >= 0 && y < kShape.height && x >= 0 && x < kShape.width) {
    byte = pixels[(c * kShape.height + y) * kShape.width + x];
  }
  const float mean = c == 0 ? 0.5f : 0.25f;
  const float stddev = c == 0 ? 0.25f : 0.125f;
  return (static_cast<float>(byte) / 255.0f - mean) / stddev;
}

TEST(NormalizerTest, EveryPlacementEqualsTheDefinition) {
  constexpr uint64_t kSeed = 9;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  RandomStream rng(kSeed, RandomPurpose::kTest);
  std::vector<uint8_t> pixels(static_cast<size_t>(kShape.size()));
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(rng.Next32());
  const Normalizer normalizer(Example());
  std::vector<float> out(pixels.size());
  // Beyond the image's sides too, where nothing but padding is left.
  for (int64_t top = -8; top <= 8; ++top) {
    for (int64_t left = -10; left <= 10; ++left) {
      for (const bool mirrored : {false, true}) {
        const Placement placement{
            .top = top, .left = left, .mirrored = mirrored};
        out.assign(out.size(), 1e9f);
        normalizer.Apply(pixels, placement, absl::MakeSpan(out));
        size_t i = 0;
        for (int64_t c = 0; c < kShape.channels; ++c) {
          for (int64_t y = 0; y < kShape.height; ++y) {
            for (int64_t x = 0; x < kShape.width; ++x) {
              ASSERT_EQ(out[i++], Expected(pixels, placement, c, y, x))
                  << "top " << top << " left " << left << " mirrored "
                  << mirrored << " at " << c << " " << y << " " << x;
            }
          }
        }
      }
    }
  }
}

TEST(NormalizerTest, BlackAndWhiteHaveTheirClosedForms) {
  const Normalizer normalizer(Example());
  std::vector<uint8_t> pixels(static_cast<size_t>(kShape.size()), 255);
  std::vector<float> out(pixels.size());
  normalizer.Apply(pixels, {}, absl::MakeSpan(out));
  EXPECT_EQ(out.front(), 2.0f);  // (1 - 0.5) / 0.25
  EXPECT_EQ(out.back(), 6.0f);   // (1 - 0.25) / 0.125
  normalizer.Apply(pixels, {.top = 100}, absl::MakeSpan(out));
  EXPECT_EQ(out.front(), -2.0f);  // (0 - 0.5) / 0.25
  EXPECT_EQ(out.back(), -2.0f);
}

}  // namespace
}  // namespace rivulet
