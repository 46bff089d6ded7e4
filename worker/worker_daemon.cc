#include "worker/worker_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <set>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/checkpoint_store.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_plan.h"
#include "common/daemon/session_client.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/model.h"
#include "spdlog/spdlog.h"
#include "worker/exchange_client.h"
#include "worker/push_pipeline.h"
#include "worker/run_session.h"
#include "worker/trainer.h"
#include "worker/worker_checkpoint.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// A stream that breaks is often but the echo of what ended the run: the
// controller has this long to tell the reason before this worker reports its
// own.
constexpr absl::Duration kReasonGrace = absl::Seconds(2);
// How long a worker that has failed waits for the verdict.
constexpr absl::Duration kVerdictTimeout = absl::Seconds(15);

class ControllerSession final : public RunSession {
 public:
  explicit ControllerSession(SessionClient* client) : client_(client) {}
  void Send(v1::DaemonMessage message) override {
    client_->Send(std::move(message));
  }
  void SetStep(int64_t step) override {
    client_->SetStep(static_cast<uint64_t>(step));
  }
  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(
      uint64_t seq, absl::Duration timeout) override {
    return client_->WaitForEntry(seq, timeout);
  }
  int64_t wire_sent() const override { return client_->sent().wire(); }
  int64_t wire_received() const override { return client_->received().wire(); }

 private:
  SessionClient* const client_;
};

// Asks the controller to stop once `requested` says so.
class StopWatcher {
 public:
  StopWatcher(std::function<bool()> requested, SessionClient* session)
      : requested_(std::move(requested)), session_(session) {
    if (requested_ != nullptr) {
      thread_ = std::thread([this] { Watch(); });
    }
  }
  ~StopWatcher() {
    done_.Notify();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Watch() {
    while (!requested_()) {
      if (done_.WaitForNotificationWithTimeout(kPoll)) return;
    }
    spdlog::info("told to stop: asking the controller");
    v1::DaemonMessage message;
    message.mutable_stop()->set_reason("told to stop");
    session_->Send(std::move(message));
  }

  const std::function<bool()> requested_;
  SessionClient* const session_;
  Notification done_;
  std::thread thread_;
};

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

class Worker {
 public:
  Worker(const Config& config, const WorkerOptions& options)
      : config_(config),
        options_(options),
        store_(RunPaths(options.run_dir).checkpoints(),
               absl::StrCat("worker-", options.rank)) {}

  absl::Status Run() {
    RV_RETURN_IF_ERROR(Prepare());
    RV_RETURN_IF_ERROR(Join());
    const StopWatcher watcher(options_.stop_requested, session_.get());
    return Conclude(Train());
  }

 private:
  // All that can fail without anybody else.
  absl::Status Prepare() {
    if (options_.rank < 0 || options_.rank >= config_.cluster.workers) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", options_.rank,
                       " with cluster.workers = ", config_.cluster.workers,
                       "; allowed: 0 to ", config_.cluster.workers - 1));
    }
    RV_ASSIGN_OR_RETURN(plan_, RunPlan::Create(config_));
    RV_ASSIGN_OR_RETURN(train_,
                        OpenDataset(plan_->dataset_options(), Split::kTrain));
    RV_ASSIGN_OR_RETURN(test_,
                        OpenDataset(plan_->dataset_options(), Split::kTest));
    RV_RETURN_IF_ERROR(CheckSize(*train_, plan_->dataset_info().train_size));
    RV_RETURN_IF_ERROR(CheckSize(*test_, plan_->dataset_info().test_size));
    RV_RETURN_IF_ERROR(MakeModel());
    RV_RETURN_IF_ERROR(MakeFolders(RunPaths(options_.run_dir).checkpoints()));
    RV_ASSIGN_OR_RETURN(checkpoints_, store_.List());
    if (!checkpoints_.empty() && !options_.resume) {
      return absl::AlreadyExistsError(absl::StrCat(
          options_.run_dir, " holds checkpoints of worker ", options_.rank,
          ": add --resume to go on from them, or take another --run-dir"));
    }
    return absl::OkStatus();
  }

  // Everybody lays out the steps by the size that the data set's name promises.
  absl::Status CheckSize(const Dataset& dataset, int64_t expected) const {
    if (dataset.size() == expected) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(config_.data.path, ": ", config_.data.name, " has ",
                     dataset.size(), " images in a split of ", expected));
  }

  absl::Status MakeModel() {
    ModelRuntime runtime;
    runtime.threads = config_.local.threads > 0
                          ? static_cast<int>(config_.local.threads)
                          : std::max(1U, std::thread::hardware_concurrency());
    auto model = CreateModel(plan_->model_options(), runtime);
    if (absl::IsUnimplemented(model.status())) {
      spdlog::warn("{}: the slow reference operations serve",
                   std::string(model.status().message()));
      runtime.ops = ModelRuntime::Ops::kReference;
      model = CreateModel(plan_->model_options(), runtime);
    }
    RV_RETURN_IF_ERROR(model.status());
    model_ = *std::move(model);
    spdlog::info("{}, {} parameters, {} threads", plan_->manifest().model,
                 plan_->manifest().num_parameters(), runtime.threads);
    return absl::OkStatus();
  }

  absl::Status Join() {
    identity_ = {.job = "",
                 .rank = options_.rank,
                 .config_hash = ConfigHash(config_, /*for_resume=*/true),
                 .manifest_hash = plan_->manifest_hash()};
    SessionClient::Options join;
    join.controller = config_.cluster.controller;
    join.join_timeout = config_.cluster.join_timeout;
    // Three may get lost before the lease lapses.
    join.heartbeat_every = config_.cluster.lease / 4;
    join.cancelled = options_.stop_requested;
    v1::Hello& hello = join.hello;
    hello.set_protocol_min(kOldestProtocolVersion);
    hello.set_protocol_max(kProtocolVersion);
    hello.set_role(v1::ROLE_WORKER);
    hello.set_index(static_cast<uint32_t>(options_.rank));
    hello.set_config_hash(ConfigHash(config_, /*for_resume=*/false));
    hello.set_manifest_hash(identity_.manifest_hash);
    hello.set_host(HostName());
    hello.set_resume(options_.resume);
    for (const int64_t step : checkpoints_) {
      hello.add_checkpoints(static_cast<uint64_t>(step));
    }
    if (!checkpoints_.empty()) {
      RV_ASSIGN_OR_RETURN(const TensorFile newest,
                          store_.Load(checkpoints_.front()));
      const auto job = newest.metadata.find("job");
      if (job != newest.metadata.end()) hello.set_job(job->second);
    }
    RV_ASSIGN_OR_RETURN(session_, SessionClient::Join(std::move(join)));
    identity_.job = session_->welcome().job();
    spdlog::info("joined {} as incarnation {}", config_.cluster.controller,
                 session_->welcome().incarnation());
    return absl::OkStatus();
  }

  absl::Status Train() {
    RV_ASSIGN_OR_RETURN(const v1::Start start, session_->WaitForStart());
    const auto first_step = static_cast<int64_t>(start.step());
    RV_RETURN_IF_ERROR(ConnectShards(start));
    std::vector<ShardStream*> shards;
    for (const auto& stream : streams_) shards.push_back(stream.get());
    RV_ASSIGN_OR_RETURN(pipeline_, PushPipeline::Create(plan_, shards));
    Trainer::Options training;
    training.rank = options_.rank;
    training.first_step = first_step;
    training.schedule_seq =
        start.entries().empty() ? 0 : start.entries().rbegin()->seq();
    training.before_commit = options_.before_push;
    RV_RETURN_IF_ERROR(LoadState(first_step, &training.voided));

    ControllerSession session(session_.get());
    BatchLoader loader(train_, plan_->loader_options());
    Trainer::Parts parts;
    parts.plan = plan_;
    parts.model = model_.get();
    parts.train = &loader;
    parts.test = test_.get();
    parts.shards = shards;
    parts.pipeline = pipeline_.get();
    parts.session = &session;
    parts.save = [this](int64_t step, const VoidCounts& voided) {
      return SaveState(step, voided);
    };
    spdlog::info("training from step {} of {}", first_step,
                 plan_->total_steps());
    return Trainer(std::move(parts), std::move(training)).Run();
  }

  absl::Status ConnectShards(const v1::Start& start) {
    const int shards = plan_->partition().num_shards();
    if (start.shard_addresses_size() != shards) {
      return absl::InternalError(absl::StrCat("the controller names ",
                                              start.shard_addresses_size(),
                                              " shards, the config ", shards));
    }
    for (int s = 0; s < shards; ++s) {
      ExchangeClient::Options connect;
      connect.shard = s;
      connect.address = start.shard_addresses(s);
      connect.connect_timeout = config_.cluster.join_timeout;
      connect.cancelled = [this] { return session_->Ended(nullptr); };
      connect.elements = plan_->partition().elements_of_shard(s);
      connect.statistics = plan_->manifest().num_buffer_elements();
      v1::ExchangeHello& hello = connect.hello;
      hello.set_protocol_min(kOldestProtocolVersion);
      hello.set_protocol_max(kProtocolVersion);
      hello.set_job(identity_.job);
      hello.set_config_hash(ConfigHash(config_, /*for_resume=*/false));
      hello.set_manifest_hash(identity_.manifest_hash);
      hello.set_rank(static_cast<uint32_t>(options_.rank));
      hello.set_incarnation(session_->welcome().incarnation());
      hello.set_next_step(start.step());
      RV_ASSIGN_OR_RETURN(auto stream, ExchangeClient::Connect(connect));
      streams_.push_back(std::move(stream));
    }
    std::vector<ExchangeClient*> streams;
    for (const auto& stream : streams_) streams.push_back(stream.get());
    session_->OnEnd([streams](const absl::Status& result) {
      const absl::Status reason =
          result.ok() ? absl::CancelledError("the run has ended")
                      : Annotate(result, "the run has ended");
      for (ExchangeClient* const stream : streams) stream->Cancel(reason);
    });
    return absl::OkStatus();
  }

  absl::Status LoadState(int64_t step, VoidCounts* voided) {
    if (step == 0) {
      InitializeModel(*model_, static_cast<uint64_t>(config_.train.seed));
      return absl::OkStatus();
    }
    RV_ASSIGN_OR_RETURN(const TensorFile file, store_.Load(step));
    RV_RETURN_IF_ERROR(
        Annotate(RestoreWorkerCheckpoint(file, identity_, step, voided, *model_,
                                         *pipeline_),
                 store_.PathOf(step)));
    // What is kept besides: older sets that this run may still fall back to.
    for (auto it = checkpoints_.rbegin(); it != checkpoints_.rend(); ++it) {
      if (*it <= step) saved_.push_back(*it);
    }
    return absl::OkStatus();
  }

  // The set that is being made is not complete yet: the newest
  // checkpoint.keep before it stay as well.
  absl::Status SaveState(int64_t step, const VoidCounts& voided) {
    const absl::Time start = absl::Now();
    RV_RETURN_IF_ERROR(store_.Save(
        step,
        MakeWorkerCheckpoint(identity_, step, voided, *model_, *pipeline_)));
    saved_.push_back(step);
    while (static_cast<int64_t>(saved_.size()) > config_.checkpoint.keep + 1) {
      saved_.pop_front();
    }
    spdlog::info("saved checkpoint {} in {}", step,
                 absl::FormatDuration(
                     absl::Trunc(absl::Now() - start, absl::Milliseconds(1))));
    return store_.Prune({saved_.begin(), saved_.end()});
  }

  // Tells the controller how it went here and returns how the run went.
  absl::Status Conclude(const absl::Status& own) {
    if (own.ok()) return session_->WaitForFinish();
    absl::Status verdict;
    const bool echo = absl::IsUnavailable(own) || absl::IsCancelled(own) ||
                      absl::IsAborted(own);
    if (echo && EndsWithin(kReasonGrace, &verdict)) {
      return verdict.ok() ? own : verdict;
    }
    spdlog::error("giving up: {}", own.ToString());
    v1::DaemonMessage message;
    message.mutable_failure()->set_code(static_cast<int32_t>(own.code()));
    message.mutable_failure()->set_message(std::string(own.message()));
    session_->Send(std::move(message));
    if (EndsWithin(kVerdictTimeout, &verdict) && !verdict.ok()) return verdict;
    return own;
  }

  bool EndsWithin(absl::Duration timeout, absl::Status* verdict) {
    const auto ended = std::make_shared<Notification>();
    session_->OnEnd([ended](const absl::Status&) { ended->Notify(); });
    ended->WaitForNotificationWithTimeout(timeout);
    return session_->Ended(verdict);
  }

  const Config config_;
  const WorkerOptions options_;
  CheckpointStore store_;
  std::shared_ptr<const RunPlan> plan_;
  std::shared_ptr<const Dataset> train_;
  std::shared_ptr<const Dataset> test_;
  std::unique_ptr<Model> model_;
  std::vector<int64_t> checkpoints_;  // found at the start, newest first
  std::deque<int64_t> saved_;         // kept, oldest first
  WorkerIdentity identity_;
  // The session's end cancels the streams: it goes first.
  std::vector<std::unique_ptr<ExchangeClient>> streams_;
  std::unique_ptr<PushPipeline> pipeline_;
  std::unique_ptr<SessionClient> session_;
};

}  // namespace

absl::Status RunWorker(const Config& config, const WorkerOptions& options) {
  return Worker(config, options).Run();
}

}  // namespace rivulet
