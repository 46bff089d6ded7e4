// What the worker's tests share: a small job, and stand-ins for shards and
// controller that live in memory.

#ifndef RIVULET_TESTS_WORKER_WORKER_TEST_UTIL_H_
#define RIVULET_TESTS_WORKER_WORKER_TEST_UTIL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/sync.h"
#include "common/daemon/config.h"
#include "common/daemon/run_plan.h"
#include "server/shard_core.h"
#include "worker/run_session.h"
#include "worker/shard_stream.h"

namespace rivulet::testing {

// A two-layer network on 8x8 images that trains in milliseconds.
inline Config SmallConfig(const std::string& policy, int workers = 1,
                          int shards = 2) {
  Config config;
  config.model.name = "mlp";
  config.model.hidden = {40};
  config.data.name = "synthetic";
  config.data.augment = "none";
  config.data.synthetic.train = 128;
  config.data.synthetic.test = 30;
  config.data.synthetic.classes = 4;
  config.data.synthetic.channels = 1;
  config.data.synthetic.height = 8;
  config.data.synthetic.width = 8;
  config.train.batch_size = 16;
  config.train.epochs = 5;  // 40 steps
  config.train.evaluate_every_epochs = 0;
  config.optimizer.learning_rate = 0.05;
  config.optimizer.weight_decay = 1e-3;
  config.compression.policy = policy;
  config.compression.density = 0.25;
  config.compression.warmup.start = 0.5;
  config.cluster.workers = workers;
  config.cluster.shards = shards;
  config.report.every = absl::Minutes(1);
  return config;
}

inline std::shared_ptr<const RunPlan> PlanOf(const Config& config) {
  auto plan = RunPlan::Create(config);
  RV_CHECK(plan.ok()) << plan.status().ToString();
  return *std::move(plan);
}

// One push as a shard would get it.
struct RecordedPush {
  int64_t step = 0;
  std::vector<std::string> pieces;  // in order; the last came with the commit
  v1::Commit commit;
  std::string bytes() const {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    return all;
  }
};

// Writes down what is sent; has no updates to give. Thread-compatible.
class RecordingStream : public ShardStream {
 public:
  explicit RecordingStream(int shard) : shard_(shard) {}

  int shard() const override { return shard_; }
  void SendPush(int64_t step, std::string frames) override {
    open_.step = step;
    open_.pieces.push_back(std::move(frames));
  }
  void SendCommit(int64_t step, std::string frames,
                  const v1::Commit& commit) override {
    SendPush(step, std::move(frames));
    open_.commit = commit;
    pushes.push_back(std::exchange(open_, RecordedPush()));
  }
  void SendBoundary(int64_t step, uint64_t schedule_seq) override {
    boundaries.emplace_back(step, schedule_seq);
  }
  void SendStatistics(int64_t step, absl::Span<const float> values) override {
    statistics_step = step;
    statistics.assign(values.begin(), values.end());
  }
  absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t) override {
    return absl::UnimplementedError("no updates here");
  }
  absl::StatusOr<std::vector<float>> WaitForStatistics(int64_t) override {
    return mean_statistics;
  }
  void Cancel(const absl::Status&) override {}
  const ByteCounter& sent() const override { return sent_; }
  const ByteCounter& received() const override { return received_; }

  std::vector<RecordedPush> pushes;
  std::vector<std::pair<int64_t, uint64_t>> boundaries;
  int64_t statistics_step = -1;
  std::vector<float> statistics;
  std::vector<float> mean_statistics;  // what WaitForStatistics returns

 private:
  const int shard_;
  RecordedPush open_;
  ByteCounter sent_;
  ByteCounter received_;
};

// A real ShardCore without a network, shared by the streams of all ranks.
// Thread-safe.
class MemoryShard {
 public:
  MemoryShard(std::shared_ptr<const RunPlan> plan, int shard) {
    auto core = ShardCore::Create(std::move(plan), shard);
    RV_CHECK(core.ok()) << core.status().ToString();
    core_ = *std::move(core);
  }

  ShardCore& core() { return *core_; }
  // Changes what streams receive. May be null; set before they do.
  std::function<void(ReceivedUpdate*)> alters;
  // What the updates are stamped with after `step`.
  void StampAfter(int64_t step, uint64_t seq) {
    MutexLock lock(&mu_);
    stamp_step_ = step;
    stamp_seq_ = seq;
  }

  void Submit(int rank, int64_t step, const std::string& bytes,
              const v1::Commit& commit) {
    MutexLock lock(&mu_);
    const auto result = core_->SubmitPush(rank, 0, step, bytes, commit);
    if (!result.ok()) {
      broken_ = result.status();
    } else if (core_->Ready()) {
      auto update = core_->MakeUpdate(step >= stamp_step_ ? stamp_seq_ : 0);
      if (!update.ok()) broken_ = update.status();
    }
    changed_.SignalAll();
  }

  absl::StatusOr<ReceivedUpdate> Wait(int64_t step) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mu_);
    while (broken_.ok() && core_->version() <= step) {
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat("step ", step));
      }
      changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
    }
    if (!broken_.ok()) return broken_;
    const auto update = core_->FindUpdate(step);
    RV_CHECK(update != nullptr) << step;
    ReceivedUpdate received{update->step, update->bytes, update->end};
    if (alters) alters(&received);
    return received;
  }

  void Break(const absl::Status& reason) {
    MutexLock lock(&mu_);
    broken_ = reason;
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::unique_ptr<ShardCore> core_;
  int64_t stamp_step_ = 0;
  uint64_t stamp_seq_ = 0;
  absl::Status broken_;
};

// One rank's stream to a MemoryShard.
class MemoryStream final : public RecordingStream {
 public:
  MemoryStream(MemoryShard* core, int shard, int rank)
      : RecordingStream(shard), core_(core), rank_(rank) {}

  void SendCommit(int64_t step, std::string frames,
                  const v1::Commit& commit) override {
    RecordingStream::SendCommit(step, std::move(frames), commit);
    core_->Submit(rank_, step, pushes.back().bytes(), commit);
  }
  absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t step) override {
    return core_->Wait(step);
  }
  void Cancel(const absl::Status& reason) override { core_->Break(reason); }

 private:
  MemoryShard* const core_;
  const int rank_;
};

// A controller that has all its schedule entries already. Thread-compatible.
class MemorySession final : public RunSession {
 public:
  void Send(v1::DaemonMessage message) override {
    messages.push_back(std::move(message));
  }
  void SetStep(int64_t step) override { steps_done = step; }
  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(uint64_t seq,
                                                 absl::Duration) override {
    if (seq > entries.size()) return absl::DeadlineExceededError("no entry");
    return entries[seq - 1];
  }
  int64_t wire_sent() const override { return 100; }
  int64_t wire_received() const override { return 10; }

  // Messages of one kind.
  std::vector<v1::DaemonMessage> Of(v1::DaemonMessage::KindCase kind) const {
    std::vector<v1::DaemonMessage> found;
    for (const v1::DaemonMessage& m : messages) {
      if (m.kind_case() == kind) found.push_back(m);
    }
    return found;
  }

  std::vector<v1::ScheduleEntry> entries;
  std::vector<v1::DaemonMessage> messages;
  int64_t steps_done = 0;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_WORKER_WORKER_TEST_UTIL_H_
