#include "worker/evaluator.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/worker_test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::PlanOf;
using ::rivulet::testing::RecordingStream;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;

// Has two buffers; evaluating counts images and shows the buffers in the loss.
class BufferModel final : public Model {
 public:
  BufferModel() {
    manifest_.buffers.resize(2);
    manifest_.buffers[0] = {.name = "a", .shape = {2}};
    manifest_.buffers[1] = {.name = "b", .shape = {1}};
  }
  std::string ops() const override { return "test"; }
  const Manifest& manifest() const override { return manifest_; }
  absl::Span<float> parameter(int) override { return {}; }
  absl::Span<const float> gradient(int) const override { return {}; }
  AlignedBuffer<float>& gradient_buffer(int) override { return gradient_; }
  absl::Span<float> buffer(int i) override {
    return i == 0 ? absl::MakeSpan(a) : absl::MakeSpan(b);
  }
  void ParametersChanged() override {}
  LossResult Forward(absl::Span<const float>,
                     absl::Span<const int32_t> labels) override {
    ++forwards;
    sizes.push_back(static_cast<int64_t>(labels.size()));
    return {};
  }
  void Backward(const std::function<void(int)>&) override {}
  LossResult Evaluate(absl::Span<const float>,
                      absl::Span<const int32_t> labels) override {
    sizes.push_back(static_cast<int64_t>(labels.size()));
    const auto n = static_cast<int64_t>(labels.size());
    return {.loss_sum = static_cast<double>(n) * double{a[0]},
            .correct = 1,
            .samples = n};
  }
  void BeginStatistics() override { a = {0, 0}; }
  void EndStatistics() override {
    a = {static_cast<float>(forwards), 0};
    b = {-1};
  }

  std::vector<float> a = {1, 2}, b = {3};
  int forwards = 0;
  std::vector<int64_t> sizes;

 private:
  AlignedBuffer<float> gradient_;
  Manifest manifest_;
};

class EvaluatorTest : public ::testing::Test {
 protected:
  EvaluatorTest() : plan_(PlanOf(MakeConfig())), shard_(0) {
    train_ = *OpenDataset(plan_->dataset_options(), Split::kTrain);
    test_ = *OpenDataset(plan_->dataset_options(), Split::kTest);
    loader_ = std::make_unique<BatchLoader>(train_, plan_->loader_options());
  }
  static Config MakeConfig() {
    Config config = SmallConfig("fixed", 4, 2);
    config.train.statistics_batches = 7;
    return config;
  }

  std::shared_ptr<const RunPlan> plan_;
  std::shared_ptr<const Dataset> train_, test_;
  std::unique_ptr<BatchLoader> loader_;
  RecordingStream shard_;
  BufferModel model_;
};

TEST_F(EvaluatorTest, AddsUpUnevenBatches) {
  RV_ASSERT_OK_AND_ASSIGN(const LossResult result,
                          EvaluateDataset(model_, *test_, 3, 30, 10));
  EXPECT_EQ(result.samples, 27);
  EXPECT_EQ(result.correct, 3);
  EXPECT_THAT(model_.sizes, ElementsAre(10, 10, 7));
}

TEST_F(EvaluatorTest, EvaluatesWithTheMeanAndKeepsItsOwnStatistics) {
  shard_.mean_statistics = {10, 20, 30};
  // 30 images over 4 ranks: rank 1 has 8.
  Evaluator evaluator(plan_, 1, &model_, test_.get(), loader_.get(), &shard_);
  RV_ASSERT_OK_AND_ASSIGN(const LossResult result, evaluator.EvaluateAfter(5));
  EXPECT_EQ(shard_.statistics_step, 5);
  EXPECT_THAT(shard_.statistics, ElementsAre(1, 2, 3));
  EXPECT_EQ(result.samples, 8);
  EXPECT_EQ(result.loss_sum, 80);
  EXPECT_THAT(model_.a, ElementsAre(1, 2));
  EXPECT_THAT(model_.b, ElementsAre(3));
}

TEST_F(EvaluatorTest, EstimatesStatisticsAnewAtTheEnd) {
  shard_.mean_statistics = {10, 20, 30};
  Evaluator evaluator(plan_, 2, &model_, test_.get(), loader_.get(), &shard_);
  RV_ASSERT_OK_AND_ASSIGN(const LossResult result, evaluator.EvaluateFinal(39));
  EXPECT_EQ(model_.forwards, 7);
  EXPECT_EQ(model_.sizes.front(), 4) << "a slice of a batch of 16";
  EXPECT_THAT(shard_.statistics, ElementsAre(7, 0, -1));
  EXPECT_EQ(result.samples, 7);
  EXPECT_THAT(model_.a, ElementsAre(10, 20)) << "the mean stays";
}

TEST_F(EvaluatorTest, SharesCoverTheTestSetOnce) {
  shard_.mean_statistics = {0, 0, 0};
  int64_t samples = 0;
  for (int rank = 0; rank < 4; ++rank) {
    Evaluator evaluator(plan_, rank, &model_, test_.get(), loader_.get(),
                        &shard_);
    RV_ASSERT_OK_AND_ASSIGN(const LossResult result,
                            evaluator.EvaluateAfter(0));
    samples += result.samples;
  }
  EXPECT_EQ(samples, 30);
}

}  // namespace
}  // namespace rivulet
