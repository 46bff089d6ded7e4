#include "data/batch_loader.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "data/augment.h"
#include "data/image_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 57;

// Label i says which sample it is; the pixels are random.
std::shared_ptr<const Dataset> Numbered(int64_t samples = kSamples) {
  ImageSet images{.shape = {.channels = 3, .height = 6, .width = 6},
                  .num_classes = 256,
                  .mean = {0.1f, 0.2f, 0.3f},
                  .stddev = {0.5f, 0.25f, 0.75f},
                  .pixels = {},
                  .labels = {}};
  RandomStream rng(4, RandomPurpose::kTest);
  for (int64_t i = 0; i < samples; ++i) {
    images.labels.push_back(static_cast<uint8_t>(i));
    for (int64_t p = 0; p < images.shape.size(); ++p) {
      images.pixels.push_back(static_cast<uint8_t>(rng.Next32()));
    }
  }
  return std::make_shared<InMemoryDataset>(std::move(images));
}

// Fails at one sample.
class Damaged : public Dataset {
 public:
  explicit Damaged(int64_t bad) : good_(Numbered()), bad_(bad) {}
  int64_t size() const override { return good_->size(); }
  ImageShape shape() const override { return good_->shape(); }
  int64_t num_classes() const override { return good_->num_classes(); }
  absl::Span<const float> mean() const override { return good_->mean(); }
  absl::Span<const float> stddev() const override { return good_->stddev(); }
  absl::StatusOr<int32_t> Read(int64_t index,
                               absl::Span<uint8_t> pixels) const override {
    if (index == bad_) return absl::DataLossError("record 9 is damaged");
    return good_->Read(index, pixels);
  }

 private:
  const std::shared_ptr<const Dataset> good_;
  const int64_t bad_;
};

LoaderOptions Options() {
  return {
      .batch_size = 10, .seed = 5, .augment = Augment::kPadCropFlip, .pad = 2};
}

Batch MakeOrDie(const BatchLoader& loader, int64_t step, int members = 1,
                int position = 0) {
  absl::StatusOr<Batch> batch = loader.Make(step, members, position);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.ok() ? *std::move(batch) : Batch();
}

void ExpectEqual(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.images, b.images);
}

TEST(SliceOfTest, PartsAreEvenAndCoverTheBatch) {
  for (int64_t batch = 0; batch <= 40; ++batch) {
    for (int members = 1; members <= 12; ++members) {
      int64_t next = 0;
      int64_t previous = batch;
      for (int position = 0; position < members; ++position) {
        const Slice slice = SliceOf(batch, members, position);
        EXPECT_EQ(slice.begin, next);
        EXPECT_LE(slice.size(), previous);  // remainders to the lower ones
        EXPECT_GE(slice.size(), batch / members);
        EXPECT_LE(slice.size(), batch / members + 1);
        previous = slice.size();
        next = slice.end;
      }
      EXPECT_EQ(next, batch);
    }
  }
}

TEST(StepsPerEpochTest, CountsWholeAndPartialBatches) {
  EXPECT_EQ(StepsPerEpoch(50000, 128, true), 390);
  EXPECT_EQ(StepsPerEpoch(50000, 128, false), 391);
  EXPECT_EQ(StepsPerEpoch(256, 128, true), 2);
  EXPECT_EQ(StepsPerEpoch(256, 128, false), 2);
  EXPECT_EQ(StepsPerEpoch(100, 128, true), 0);
  EXPECT_EQ(StepsPerEpoch(100, 128, false), 1);
  EXPECT_EQ(StepsPerEpoch(0, 128, false), 0);
}

TEST(BatchLoaderTest, MembersTogetherMakeTheWholeBatch) {
  for (const bool drop_last : {true, false}) {
    LoaderOptions options = Options();
    options.drop_last = drop_last;
    const BatchLoader loader(Numbered(), options);
    for (int64_t step = 0; step < 2 * loader.steps_per_epoch(); ++step) {
      const Batch whole = MakeOrDie(loader, step);
      // 13 members leave empty parts.
      for (const int members : {1, 2, 3, 4, 5, 6, 7, 13}) {
        Batch joined{.step = step, .images = {}, .labels = {}};
        for (int position = 0; position < members; ++position) {
          const Batch part = MakeOrDie(loader, step, members, position);
          EXPECT_EQ(part.size(),
                    SliceOf(whole.size(), members, position).size());
          joined.images.insert(joined.images.end(), part.images.begin(),
                               part.images.end());
          joined.labels.insert(joined.labels.end(), part.labels.begin(),
                               part.labels.end());
        }
        ExpectEqual(joined, whole);
      }
    }
  }
}

TEST(BatchLoaderTest, AnEpochHoldsEverySampleOnce) {
  LoaderOptions options = Options();
  options.drop_last = false;
  const BatchLoader loader(Numbered(), options);
  ASSERT_EQ(loader.steps_per_epoch(), 6);
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> order;
    for (int64_t step = 6 * epoch; step < 6 * (epoch + 1); ++step) {
      const Batch batch = MakeOrDie(loader, step);
      order.insert(order.end(), batch.labels.begin(), batch.labels.end());
    }
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(order.size(), static_cast<size_t>(kSamples));
    for (int32_t i = 0; i < kSamples; ++i) EXPECT_EQ(order[i], i);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(BatchLoaderTest, DroppingTheLastBatchRepeatsNoSample) {
  const BatchLoader loader(Numbered(), Options());
  ASSERT_EQ(loader.steps_per_epoch(), 5);
  std::vector<int32_t> seen;
  for (int64_t step = 0; step < 5; ++step) {
    const Batch batch = MakeOrDie(loader, step);
    EXPECT_EQ(batch.size(), 10);
    seen.insert(seen.end(), batch.labels.begin(), batch.labels.end());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// From the definition: the permutation of (seed, kShuffle, epoch), and the
// placement of (seed, kAugment, epoch, sample).
TEST(BatchLoaderTest, BatchesEqualTheDefinition) {
  const auto set = Numbered();
  const Normalizer normalizer(*set);
  for (const Augment augment :
       {Augment::kNone, Augment::kPadCrop, Augment::kPadCropFlip}) {
    LoaderOptions options = Options();
    options.augment = augment;
    const BatchLoader loader(set, options);
    constexpr int64_t kEpoch = 2;
    const Batch batch = MakeOrDie(loader, kEpoch * 5 + 3);
    std::vector<uint32_t> order(kSamples);
    for (uint32_t i = 0; i < kSamples; ++i) order[i] = i;
    RandomStream shuffle(5, RandomPurpose::kShuffle, kEpoch);
    shuffle.Shuffle(absl::MakeSpan(order));
    std::vector<uint8_t> pixels(108);
    std::vector<float> expected(108);
    for (size_t i = 0; i < 10; ++i) {
      const uint32_t sample = order[30 + i];
      ASSERT_EQ(batch.labels[i], static_cast<int32_t>(sample));
      Placement placement;
      if (augment != Augment::kNone) {
        RandomStream rng(5, RandomPurpose::kAugment, kEpoch, sample);
        placement.top = int64_t{rng.UniformInt(5)} - 2;
        placement.left = int64_t{rng.UniformInt(5)} - 2;
        placement.mirrored =
            augment == Augment::kPadCropFlip && rng.UniformInt(2) == 1;
      }
      ASSERT_THAT(set->Read(sample, absl::MakeSpan(pixels)), IsOk());
      normalizer.Apply(pixels, placement, absl::MakeSpan(expected));
      EXPECT_EQ(std::vector<float>(batch.images.begin() + 108 * i,
                                   batch.images.begin() + 108 * (i + 1)),
                expected);
    }
  }
}

TEST(BatchLoaderTest, TheBackgroundThreadMakesTheSameBatches) {
  BatchLoader loader(Numbered(), Options());
  for (const int64_t first : {0, 3, 7}) {
    loader.Start(first, 12, 3, 1);
    for (int64_t step = first; step < 12; ++step) {
      RV_ASSERT_OK_AND_ASSIGN(const Batch batch, loader.Next());
      ExpectEqual(batch, MakeOrDie(loader, step, 3, 1));
      EXPECT_EQ(batch.step, step);
    }
    EXPECT_THAT(loader.Next().status(),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("no batch after step 11")));
    EXPECT_THAT(loader.Next().status(),
                StatusIs(absl::StatusCode::kOutOfRange));
  }
}

TEST(BatchLoaderTest, StartAgainDropsWhatWasPrepared) {
  BatchLoader loader(Numbered(), Options());
  for (int round = 0; round < 20; ++round) {
    loader.Start(0, 1000000, 1, 0);  // never taken: the queue is full
    loader.Start(round, 1000000, 2, 1);
    RV_ASSERT_OK_AND_ASSIGN(const Batch batch, loader.Next());
    ExpectEqual(batch, MakeOrDie(loader, round, 2, 1));
  }
}  // and the destructor stops the last thread

TEST(BatchLoaderTest, EmptyPartsAreBatchesToo) {
  LoaderOptions options = Options();
  options.batch_size = 2;
  BatchLoader loader(Numbered(), options);
  loader.Start(0, 3, 4, 3);
  for (int64_t step = 0; step < 3; ++step) {
    RV_ASSERT_OK_AND_ASSIGN(const Batch batch, loader.Next());
    EXPECT_EQ(batch.size(), 0);
    EXPECT_EQ(batch.step, step);
  }
}

TEST(BatchLoaderTest, AnEmptyRangeEndsAtOnce) {
  BatchLoader loader(Numbered(), Options());
  loader.Start(5, 5, 1, 0);
  EXPECT_THAT(loader.Next().status(), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(BatchLoaderTest, AsksToBeStarted) {
  BatchLoader loader(Numbered(), Options());
  EXPECT_THAT(loader.Next().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(BatchLoaderTest, SaysWhenThereIsNoWholeBatch) {
  LoaderOptions options = Options();
  options.batch_size = 100;
  BatchLoader loader(Numbered(), options);
  EXPECT_EQ(loader.steps_per_epoch(), 0);
  loader.Start(0, 5, 1, 0);
  EXPECT_THAT(loader.Next().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("57 samples has no whole batch of 100")));
}

TEST(BatchLoaderTest, PassesOnTheDataSetsErrors) {
  LoaderOptions options = Options();
  options.drop_last = false;
  BatchLoader loader(std::make_shared<Damaged>(9), options);
  loader.Start(0, 6, 1, 0);
  absl::Status status;
  int good = 0;
  while (status.ok()) {
    status = loader.Next().status();
    good += status.ok() ? 1 : 0;
  }
  EXPECT_LT(good, 6);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("record 9 is damaged")));
  EXPECT_THAT(loader.Next().status(), StatusIs(absl::StatusCode::kDataLoss));
  // It may be started anew.
  loader.Start(0, 1, 57, 56);
  EXPECT_THAT(loader.Next().status(), IsOk());
}

TEST(BatchLoaderTest, SeedsGiveOtherOrdersAndAugmentations) {
  LoaderOptions options = Options();
  const Batch one = MakeOrDie(BatchLoader(Numbered(), options), 0);
  options.seed = 6;
  const Batch two = MakeOrDie(BatchLoader(Numbered(), options), 0);
  EXPECT_NE(one.labels, two.labels);
  EXPECT_NE(one.images, two.images);
}

TEST(ReadInOrderTest, ReadsWithoutAugmentation) {
  const auto set = Numbered();
  RV_ASSERT_OK_AND_ASSIGN(const Batch batch, ReadInOrder(*set, 20, 31));
  ASSERT_EQ(batch.size(), 11);
  const Normalizer normalizer(*set);
  std::vector<uint8_t> pixels(108);
  std::vector<float> expected(108);
  for (size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(batch.labels[i], static_cast<int32_t>(20 + i));
    ASSERT_THAT(set->Read(20 + static_cast<int64_t>(i), absl::MakeSpan(pixels)),
                IsOk());
    normalizer.Apply(pixels, {}, absl::MakeSpan(expected));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           batch.images.begin() + 108 * i));
  }
}

TEST(ReadInOrderTest, RefusesRangesBeyondTheSet) {
  const auto set = Numbered();
  EXPECT_THAT(ReadInOrder(*set, 57, 57), IsOk());
  for (const auto& [begin, end] :
       std::vector<std::pair<int, int>>{{-1, 3}, {5, 4}, {50, 58}}) {
    EXPECT_THAT(ReadInOrder(*set, begin, end).status(),
                StatusIs(absl::StatusCode::kOutOfRange));
  }
}

}  // namespace
}  // namespace rivulet
