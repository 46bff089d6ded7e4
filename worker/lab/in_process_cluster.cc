#include "worker/lab/in_process_cluster.h"

#include <spdlog/spdlog.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/digest.h"
#include "common/daemon/logging.h"
#include "common/daemon/text_file.h"
#include "data/dataset.h"
#include "server/controller/run_coordinator.h"
#include "server/controller/run_record.h"
#include "server/shard_member.h"
#include "worker/core_gate.h"
#include "worker/lab/local_hub.h"
#include "worker/worker_daemon.h"

namespace rivulet {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr char kAddress[] = "this-process";  // where nobody has to dial

using SessionLocalHub = LocalHub<v1::DaemonMessage, v1::ControllerMessage>;
using ExchangeLocalHub = LocalHub<v1::WorkerMessage, v1::ShardMessage>;

// The coordinator of a run and the streams of its members. Thread-safe.
class Conductor {
 public:
  Conductor(RunRecord* record, std::function<bool()> stop_requested)
      : stop_requested_(std::move(stop_requested)), hub_("the controller") {
    RunCoordinator::Parts parts = record->CoordinatorParts(&hub_);
    // Threads of this process are not lost.
    parts.lease = absl::InfiniteDuration();
    coordinator_.emplace(std::move(parts), absl::Now());
    hub_.Open([this](SessionLocalHub::Event event) {
      coordinator_->Handle(std::move(event), absl::Now());
      coordinator_->Tick(absl::Now());
    });
  }

  Connector<v1::DaemonMessage, v1::ControllerMessage> ConnectorOf(
      std::string member) {
    return [this, member = std::move(member)](SessionLocalHub::Listener* l) {
      return hub_.Connect(member, l);
    };
  }

  // Somebody has done `step` steps: what is due then is in the schedule before
  // the next step's updates are made.
  void Tick(std::optional<int64_t> step) {
    const bool stop = stop_requested_ != nullptr && stop_requested_();
    hub_.InTurn([&] {
      if (step.has_value()) coordinator_->SetStep(*step);
      if (stop) coordinator_->Stop("it was told to stop");
      coordinator_->Tick(absl::Now());
    });
  }

  // A member has ended. If that was its own doing, it is everybody's end.
  void MemberEnded(const absl::Status& status) {
    hub_.InTurn([&] {
      if (!status.ok() && !coordinator_->ended()) coordinator_->Fail(status);
    });
  }

  v1::RunStatus Status() {
    v1::RunStatus status;
    hub_.InTurn([&] { status = coordinator_->Status(absl::Now()); });
    return status;
  }

  // Once all members have ended.
  absl::Status Result() {
    absl::Status result;
    hub_.InTurn([&] {
      result = coordinator_->ended()
                   ? coordinator_->result()
                   : absl::InternalError("all have left an unfinished run");
    });
    return result;
  }

 private:
  const std::function<bool()> stop_requested_;
  SessionLocalHub hub_;
  std::optional<RunCoordinator> coordinator_;  // in the hub's turn
};

// One shard: its state, and the streams of the workers to it. Workers' threads
// do its work; its own waits for the end.
class ShardSeat {
 public:
  ShardSeat(const Config& config, RunMember::Options options)
      : hub_(absl::StrCat("shard ", options.index)),
        member_(config, std::move(options)) {}

  Connector<v1::WorkerMessage, v1::ShardMessage> ConnectorOf(
      std::string worker) {
    return [this, worker = std::move(worker)](ExchangeLocalHub::Listener* l) {
      return hub_.Connect(worker, l);
    };
  }

  // As RunShard.
  absl::Status Run() {
    absl::Status ready = Join();
    if (!ready.ok()) {
      hub_.Shut(absl::UnavailableError(
          absl::StrCat("it is gone: ", ready.message())));
      return ready;
    }
    return member_.Conclude(Serve());
  }

 private:
  absl::Status Join() {
    RV_RETURN_IF_ERROR(member_.Prepare());
    return member_.Join(kAddress);
  }

  absl::Status Serve() {
    absl::Status begun = member_.Begin(&hub_);
    if (!begun.ok()) {
      hub_.Shut(absl::UnavailableError(
          absl::StrCat("it is gone: ", begun.message())));
      return begun;
    }
    member_.OnEnd([this](const absl::Status&) { SetOver(absl::OkStatus()); });
    hub_.Open([this](ExchangeLocalHub::Event event) {
      if (failed_) return;
      const absl::Status status = member_.loop()->Handle(std::move(event));
      if (status.ok()) return;
      failed_ = true;
      SetOver(status);
    });
    MutexLock lock(&mu_);
    while (!over_) changed_.Wait(&mu_);
    return failure_;
  }

  void SetOver(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (over_) return;
    over_ = true;
    failure_ = failure;
    changed_.SignalAll();
  }

  Mutex mu_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);

  ExchangeLocalHub hub_;
  bool failed_ = false;  // in the hub's turn
  ShardMember member_;   // last: its end may call back into what is above
};

// How many threads still run. Thread-safe.
class Countdown {
 public:
  explicit Countdown(int count) : left_(count) {}
  void Leave() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    --left_;
    changed_.SignalAll();
  }
  // True once none is left, after at most `timeout`.
  bool Wait(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = absl::Now() + timeout;
    MutexLock lock(&mu_);
    while (left_ > 0) {
      const absl::Duration rest = deadline - absl::Now();
      if (rest <= absl::ZeroDuration()) return false;
      changed_.WaitWithTimeout(&mu_, rest);
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int left_ ABSL_GUARDED_BY(mu_);
};

class InProcessCluster {
 public:
  InProcessCluster(const Config& config, const InProcessOptions& options)
      : config_(OneThread(config)),
        options_(options),
        gate_(options.cores > 0 ? options.cores : NumCores()) {}

  absl::StatusOr<InProcessOutcome> Run() {
    RV_RETURN_IF_ERROR(Prepare());
    for (int s = 0; s < config_.cluster.shards; ++s) {
      RunMember::Options member;
      member.role = v1::ROLE_SHARD;
      member.index = s;
      member.run_dir = options_.run_dir;
      member.resume = options_.resume;
      member.connect = conductor_->ConnectorOf(absl::StrCat("shard ", s));
      shards_.push_back(
          std::make_unique<ShardSeat>(config_, std::move(member)));
    }
    RunThreads();
    RV_RETURN_IF_ERROR(conductor_->Result());
    for (const absl::Status& result : results_) RV_RETURN_IF_ERROR(result);
    InProcessOutcome outcome;
    RV_ASSIGN_OR_RETURN(outcome.summary_json,
                        ReadTextFile(record_->paths().summary()));
    RV_ASSIGN_OR_RETURN(outcome.weights_sha256,
                        Sha256HexOfFile(record_->paths().weights()));
    return outcome;
  }

 private:
  // What N workers compute must not depend on the cores that they share.
  static Config OneThread(Config config) {
    config.local.threads = 1;
    return config;
  }

  // What fails here leaves nothing behind.
  absl::Status Prepare() {
    RV_ASSIGN_OR_RETURN(
        record_, RunRecord::Create(config_, options_.run_dir, options_.resume));
    const DatasetOptions& data = record_->plan().dataset_options();
    RV_ASSIGN_OR_RETURN(train_, OpenDataset(data, Split::kTrain));
    RV_ASSIGN_OR_RETURN(test_, OpenDataset(data, Split::kTest));
    RV_RETURN_IF_ERROR(record_->Write());
    if (!options_.log.empty()) {
      RV_RETURN_IF_ERROR(
          InitLogging({.process = options_.log,
                       .level = config_.local.log_level,
                       .file = record_->paths().Log(options_.log),
                       .stderr_too = false}));
    }
    conductor_.emplace(record_.get(), options_.stop_requested);
    return absl::OkStatus();
  }

  void RunThreads() {
    const auto shards = static_cast<size_t>(config_.cluster.shards);
    const auto workers = static_cast<size_t>(config_.cluster.workers);
    results_.resize(shards + workers);
    Countdown running(static_cast<int>(results_.size()));
    std::vector<std::thread> threads;
    const auto start = [&](size_t index, std::function<absl::Status()> run) {
      threads.emplace_back([this, &running, index, run = std::move(run)] {
        results_[index] = run();
        conductor_->MemberEnded(results_[index]);
        running.Leave();
      });
    };
    for (size_t s = 0; s < shards; ++s) {
      start(s, [this, s] { return shards_[s]->Run(); });
    }
    for (size_t k = 0; k < workers; ++k) {
      start(shards + k,
            [this, k] { return RunOneWorker(static_cast<int>(k)); });
    }
    bool over = false;
    while (!over) {
      over = running.Wait(kTick);
      conductor_->Tick(std::nullopt);
      if (options_.progress != nullptr) options_.progress(conductor_->Status());
    }
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status RunOneWorker(int rank) {
    const std::string name = absl::StrCat("worker ", rank);
    WorkerHost host;
    host.controller = conductor_->ConnectorOf(name);
    for (const auto& shard : shards_) {
      host.shards.push_back(shard->ConnectorOf(name));
    }
    host.train = train_;
    host.test = test_;
    host.gate = &gate_;
    WorkerOptions worker;
    worker.rank = rank;
    worker.resume = options_.resume;
    worker.run_dir = options_.run_dir;
    worker.before_push = [this](int64_t step) { conductor_->Tick(step); };
    worker.host = &host;
    return RunWorker(config_, worker);
  }

  const Config config_;
  const InProcessOptions& options_;
  CoreGate gate_;
  std::unique_ptr<RunRecord> record_;
  std::shared_ptr<const Dataset> train_;
  std::shared_ptr<const Dataset> test_;
  std::optional<Conductor> conductor_;
  std::vector<std::unique_ptr<ShardSeat>> shards_;  // in order
  std::vector<absl::Status>
      results_;  // shards' and workers', each its thread's
};

}  // namespace

absl::StatusOr<InProcessOutcome> RunInProcess(const Config& config,
                                              const InProcessOptions& options) {
  return InProcessCluster(config, options).Run();
}

}  // namespace rivulet
