#include "worker/trainer.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <thread>  // NOLINT(build/c++11)

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/worker_test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::MemorySession;
using ::rivulet::testing::MemoryShard;
using ::rivulet::testing::MemoryStream;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

// Passes all on to a real model, but makes the gradients of chosen steps NaN.
class PoisonedModel final : public Model {
 public:
  PoisonedModel(std::unique_ptr<Model> model, std::function<bool(int)> poisons)
      : model_(std::move(model)), poisons_(std::move(poisons)) {}

  std::string ops() const override { return "test"; }
  const Manifest& manifest() const override { return model_->manifest(); }
  absl::Span<float> parameter(int i) override { return model_->parameter(i); }
  absl::Span<const float> gradient(int i) const override {
    return model_->gradient(i);
  }
  AlignedBuffer<float>& gradient_buffer(int i) override {
    return model_->gradient_buffer(i);
  }
  absl::Span<float> buffer(int i) override { return model_->buffer(i); }
  void ParametersChanged() override { model_->ParametersChanged(); }
  LossResult Forward(absl::Span<const float> images,
                     absl::Span<const int32_t> labels) override {
    ++passes_;
    return model_->Forward(images, labels);
  }
  void Backward(const std::function<void(int)>& ready) override {
    model_->Backward([&](int i) {
      if (i == 0 && poisons_ != nullptr && poisons_(passes_ - 1)) {
        model_->gradient_buffer(0).data()[1] =
            std::numeric_limits<float>::quiet_NaN();
      }
      ready(i);
    });
  }
  LossResult Evaluate(absl::Span<const float> images,
                      absl::Span<const int32_t> labels) override {
    return model_->Evaluate(images, labels);
  }
  void BeginStatistics() override { model_->BeginStatistics(); }
  void EndStatistics() override { model_->EndStatistics(); }

 private:
  const std::unique_ptr<Model> model_;
  const std::function<bool(int)> poisons_;
  int passes_ = 0;
};

// One worker with all that belongs to it.
struct TestWorker {
  std::unique_ptr<PoisonedModel> model;
  std::shared_ptr<const Dataset> train, test;
  std::unique_ptr<BatchLoader> loader;
  std::vector<std::unique_ptr<MemoryStream>> streams;
  std::unique_ptr<PushPipeline> pipeline;
  MemorySession session;
  Trainer::Options options;
  std::optional<TensorFile> saved;
  int64_t saved_step = -1;
  absl::Status result;

  Tensors Parameters() {
    Tensors tensors;
    for (size_t i = 0; i < model->manifest().parameters.size(); ++i) {
      const absl::Span<float> p = model->parameter(static_cast<int>(i));
      tensors.emplace_back(p.begin(), p.end());
    }
    return tensors;
  }
};

// Workers in threads around real ShardCores.
class Cluster {
 public:
  explicit Cluster(const Config& config,
                   const std::function<bool(int)>& poisons_rank0 = nullptr)
      : plan(PlanOf(config)) {
    for (int s = 0; s < config.cluster.shards; ++s) {
      shards.push_back(std::make_unique<MemoryShard>(plan, s));
    }
    for (int rank = 0; rank < config.cluster.workers; ++rank) {
      AddWorker(rank, rank == 0 ? poisons_rank0 : nullptr);
    }
  }

  void Run() {
    std::vector<std::thread> threads;
    for (auto& worker : workers) {
      threads.emplace_back([this, w = worker.get()] { RunOne(w); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<const RunPlan> plan;
  std::vector<std::unique_ptr<MemoryShard>> shards;
  std::vector<std::unique_ptr<TestWorker>> workers;

 private:
  void AddWorker(int rank, const std::function<bool(int)>& poisons) {
    auto worker = std::make_unique<TestWorker>();
    auto model = CreateModel(plan->model_options(), {.threads = 1});
    RV_CHECK(model.ok()) << model.status().ToString();
    worker->model = std::make_unique<PoisonedModel>(*std::move(model), poisons);
    InitializeModel(*worker->model, 1);
    worker->train = *OpenDataset(plan->dataset_options(), Split::kTrain);
    worker->test = *OpenDataset(plan->dataset_options(), Split::kTest);
    worker->loader =
        std::make_unique<BatchLoader>(worker->train, plan->loader_options());
    std::vector<ShardStream*> streams;
    for (size_t s = 0; s < shards.size(); ++s) {
      worker->streams.push_back(std::make_unique<MemoryStream>(
          shards[s].get(), static_cast<int>(s), rank));
      streams.push_back(worker->streams.back().get());
    }
    worker->pipeline = *PushPipeline::Create(plan, {}, streams);
    worker->options.rank = rank;
    workers.push_back(std::move(worker));
  }

  void RunOne(TestWorker* worker) {
    Trainer::Parts parts;
    parts.plan = plan;
    parts.model = worker->model.get();
    parts.train = worker->loader.get();
    parts.test = worker->test.get();
    for (auto& stream : worker->streams) parts.shards.push_back(stream.get());
    parts.pipeline = worker->pipeline.get();
    parts.session = &worker->session;
    parts.save = [worker](int64_t step, const VoidCounts& voided) {
      worker->saved_step = step;
      worker->saved =
          MakeWorkerCheckpoint(voided, *worker->model, *worker->pipeline);
      return absl::OkStatus();
    };
    worker->result = Trainer(parts, worker->options).Run();
    // Nobody waits for a worker that has given up.
    if (!worker->result.ok()) {
      for (auto& stream : worker->streams) stream->Cancel(worker->result);
    }
  }
};

// The shards' true weights, put together.
Tensors WeightsOf(const Cluster& cluster) {
  Tensors weights;
  for (const TensorSpec& spec : cluster.plan->manifest().parameters) {
    weights.emplace_back(spec.num_elements());
  }
  for (const auto& shard : cluster.shards) {
    for (const Segment& s : shard->core().segments()) {
      const auto w = shard->core().weights(s.local);
      std::copy(w.begin(), w.end(),
                weights[static_cast<size_t>(s.tensor)].begin() + s.begin);
    }
  }
  return weights;
}

v1::DaemonMessage Only(const MemorySession& session,
                       v1::DaemonMessage::KindCase kind) {
  const auto found = session.Of(kind);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? v1::DaemonMessage() : found[0];
}

class TrainerPolicyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainerPolicyTest, AllEndWithTheShardsWeightsAndLearn) {
  Cluster cluster(SmallConfig(GetParam(), 2, 2));
  cluster.Run();
  const Tensors weights = WeightsOf(cluster);
  int64_t correct = 0;
  int64_t samples = 0;
  for (const auto& worker : cluster.workers) {
    RV_ASSERT_OK(worker->result);
    EXPECT_EQ(worker->Parameters(), weights);
    const auto evaluation =
        Only(worker->session, v1::DaemonMessage::kEvaluation).evaluation();
    EXPECT_EQ(evaluation.step(), 40u);
    correct += static_cast<int64_t>(evaluation.correct());
    samples += static_cast<int64_t>(evaluation.samples());
    const auto report =
        Only(worker->session, v1::DaemonMessage::kReport).report();
    EXPECT_EQ(report.step(), 40u);
    EXPECT_EQ(report.samples(), 40u * 8);
    EXPECT_EQ(report.voided(), 0u);
    const auto finished =
        Only(worker->session, v1::DaemonMessage::kFinished).finished();
    EXPECT_TRUE(finished.complete());
    EXPECT_EQ(finished.step(), 40u);
    EXPECT_EQ(finished.samples(), 40u * 8);
    EXPECT_GT(finished.train_seconds(), 0);
  }
  EXPECT_EQ(samples, 30);
  EXPECT_GT(correct, 20) << "chance is 7 or 8";
}

INSTANTIATE_TEST_SUITE_P(Policies, TrainerPolicyTest,
                         ::testing::Values("none", "lossless", "fixed",
                                           "warmup"));

TEST(TrainerTest, DelaysChangeNoBit) {
  Cluster plain(SmallConfig("fixed", 2, 2));
  plain.Run();
  for (int slow = 0; slow < 2; ++slow) {
    Cluster delayed(SmallConfig("fixed", 2, 2));
    delayed.workers[static_cast<size_t>(slow)]->options.before_commit =
        [](int64_t step) {
          if (step % 4 == 0) absl::SleepFor(absl::Milliseconds(3));
        };
    delayed.Run();
    RV_ASSERT_OK(delayed.workers[0]->result);
    EXPECT_EQ(WeightsOf(delayed), WeightsOf(plain));
  }
}

TEST(TrainerTest, NumberOfWorkersChangesRoundingOnly) {
  Cluster one(SmallConfig("none", 1, 1));
  Cluster three(SmallConfig("none", 3, 2));  // 16 = 6 + 5 + 5
  one.Run();
  three.Run();
  const Tensors a = WeightsOf(one);
  const Tensors b = WeightsOf(three);
  double largest = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      largest = std::max(largest, std::abs(double{a[t][i]} - b[t][i]));
    }
  }
  // 40 steps of sums in another order: some hundred roundings of values near 1.
  EXPECT_LT(largest, 1e-4);
}

TEST(TrainerTest, ClipsTheWholeGradient) {
  Config config = SmallConfig("none", 1, 1);
  config.optimizer.clip_norm = 1e-3;
  config.optimizer.weight_decay = 0;
  config.optimizer.momentum = 0;
  config.optimizer.nesterov = false;
  config.optimizer.schedule.kind = "constant";
  config.train.max_steps = 1;
  Cluster cluster(config);
  const Tensors before = cluster.workers[0]->Parameters();
  cluster.Run();
  RV_ASSERT_OK(cluster.workers[0]->result);
  const Tensors after = cluster.workers[0]->Parameters();
  double sum = 0;
  for (size_t t = 0; t < before.size(); ++t) {
    for (size_t i = 0; i < before[t].size(); ++i) {
      sum += std::pow(double{after[t][i]} - before[t][i], 2);
    }
  }
  EXPECT_NEAR(std::sqrt(sum), 1e-3 * config.optimizer.learning_rate, 1e-7);
}

TEST(TrainerTest, VoidsAPoisonedStepAndGoesOn) {
  Cluster cluster(SmallConfig("fixed", 2, 2),
                  [](int pass) { return pass == 5; });
  cluster.Run();
  for (const auto& worker : cluster.workers) RV_ASSERT_OK(worker->result);
  const auto& poisoned = *cluster.workers[0];
  EXPECT_EQ(
      Only(poisoned.session, v1::DaemonMessage::kReport).report().voided(), 1u);
  EXPECT_EQ(
      Only(poisoned.session, v1::DaemonMessage::kFinished).finished().samples(),
      39u * 8);
  for (const auto& stream : poisoned.streams) {
    EXPECT_TRUE(stream->pushes.at(5).commit.voided());
    EXPECT_FALSE(stream->pushes.at(6).commit.voided());
  }
  EXPECT_FALSE(cluster.workers[1]->streams[0]->pushes.at(5).commit.voided());
  EXPECT_EQ(cluster.workers[0]->Parameters(), WeightsOf(cluster));
}

TEST(TrainerTest, RefusesAnUpdateThatLeavesItsPushOut) {
  Cluster cluster(SmallConfig("fixed", 1, 1));
  cluster.shards[0]->alters = [](ReceivedUpdate* update) {
    if (update->step == 4) update->end.add_contributors()->set_rank(7);
  };
  cluster.Run();
  EXPECT_THAT(cluster.workers[0]->result,
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("step 4"), HasSubstr("shard 0"),
                             HasSubstr("does not count"))));
}

TEST(TrainerTest, RefusesAnUpdateThatCountsWhatItVoided) {
  Cluster cluster(SmallConfig("fixed", 1, 1),
                  [](int pass) { return pass == 5; });
  cluster.shards[0]->alters = [](ReceivedUpdate* update) {
    update->end.set_none(false);
  };
  cluster.Run();
  EXPECT_THAT(cluster.workers[0]->result,
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("step 5"), HasSubstr("voided"))));
}

TEST(TrainerTest, GivesUpAfterFiftyVoidedStepsInARow) {
  Config config = SmallConfig("fixed", 1, 1);
  config.train.epochs = 10;
  Cluster cluster(config, [](int pass) { return pass >= 3; });
  cluster.Run();
  EXPECT_THAT(
      cluster.workers[0]->result,
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("50 steps"), HasSubstr("step 52"),
                     HasSubstr(cluster.plan->manifest().parameters[0].name))));
}

TEST(TrainerTest, StopsAtTheMarkAndResumesToTheSameBits) {
  const Config config = SmallConfig("warmup", 2, 2);
  Cluster plain(config);
  plain.Run();

  Cluster stopped(config);
  stopped.shards[0]->StampAfter(11, 2);
  for (auto& worker : stopped.workers) {
    worker->session.entries.resize(2);
    worker->session.entries[0].set_seq(1);
    worker->session.entries[0].mutable_view();
    worker->session.entries[1].set_seq(2);
    worker->session.entries[1].mutable_stop()->set_checkpoint(true);
    worker->options.schedule_seq = 1;
  }
  stopped.Run();
  for (const auto& worker : stopped.workers) {
    RV_ASSERT_OK(worker->result);
    EXPECT_EQ(worker->saved_step, 12);
    // What the run has cost up to the checkpoint is known before the
    // checkpoint.
    const auto& messages = worker->session.messages;
    const auto done =
        std::find_if(messages.begin(), messages.end(),
                     [](const auto& m) { return m.has_checkpoint_done(); });
    ASSERT_NE(done, messages.begin());
    EXPECT_EQ(std::prev(done)->report().step(), 12u);
    EXPECT_EQ(Only(worker->session, v1::DaemonMessage::kCheckpointDone)
                  .checkpoint_done()
                  .step(),
              12u);
    EXPECT_FALSE(Only(worker->session, v1::DaemonMessage::kFinished)
                     .finished()
                     .complete());
    for (const auto& stream : worker->streams) {
      EXPECT_THAT(stream->boundaries,
                  ::testing::ElementsAre(std::pair<int64_t, uint64_t>(11, 2)));
      EXPECT_EQ(stream->pushes.size(), 12u);
    }
  }

  Cluster resumed(config);
  for (size_t s = 0; s < resumed.shards.size(); ++s) {
    RV_ASSERT_OK(
        resumed.shards[s]->core().Load(stopped.shards[s]->core().Save()));
  }
  for (size_t w = 0; w < resumed.workers.size(); ++w) {
    TestWorker& worker = *resumed.workers[w];
    worker.options.first_step = 12;
    RV_ASSERT_OK(RestoreWorkerCheckpoint(*stopped.workers[w]->saved,
                                         &worker.options.voided, *worker.model,
                                         *worker.pipeline));
  }
  resumed.Run();
  for (const auto& worker : resumed.workers) RV_ASSERT_OK(worker->result);
  EXPECT_EQ(WeightsOf(resumed), WeightsOf(plain));
}

TEST(TrainerTest, EndsWithTheStreamsReason) {
  Cluster cluster(SmallConfig("fixed", 1, 2));
  MemoryShard* const shard = cluster.shards[1].get();
  cluster.workers[0]->options.before_commit = [shard](int64_t step) {
    if (step == 4) shard->Break(absl::UnavailableError("shard 1 is gone"));
  };
  cluster.Run();
  EXPECT_THAT(cluster.workers[0]->result,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shard 1")));
}

TEST(TrainerTest, RefusesARunThatIsDone) {
  Cluster cluster(SmallConfig("fixed", 1, 1));
  cluster.workers[0]->options.first_step = 40;
  cluster.Run();
  EXPECT_THAT(
      cluster.workers[0]->result,
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("40 steps")));
}

}  // namespace
}  // namespace rivulet
