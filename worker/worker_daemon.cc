#include "worker/worker_daemon.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/daemon/logging.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_member.h"
#include "common/daemon/run_plan.h"
#include "common/daemon/session_client.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "models/model.h"
#include "spdlog/spdlog.h"
#include "worker/exchange_client.h"
#include "worker/frame_recorder.h"
#include "worker/push_pipeline.h"
#include "worker/run_session.h"
#include "worker/trainer.h"
#include "worker/worker_checkpoint.h"

namespace rivulet {
namespace {

class ControllerSession final : public RunSession {
 public:
  ControllerSession(SessionClient* client, CoreGate* gate)
      : client_(client), gate_(gate) {}
  void Send(v1::DaemonMessage message) override {
    client_->Send(std::move(message));
  }
  void SetStep(int64_t step) override {
    client_->SetStep(static_cast<uint64_t>(step));
    SetLogStep(step);
  }
  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(
      uint64_t seq, absl::Duration timeout) override {
    const CoreGate::Pause pause(gate_);
    return client_->WaitForEntry(seq, timeout);
  }
  int64_t wire_sent() const override { return client_->sent().wire(); }
  int64_t wire_received() const override { return client_->received().wire(); }

 private:
  SessionClient* const client_;
  CoreGate* const gate_;
};

class Worker {
 public:
  Worker(const Config& config, const WorkerOptions& options)
      : config_(config),
        options_(options),
        member_(config, {.role = v1::ROLE_WORKER,
                         .index = options.rank,
                         .run_dir = options.run_dir,
                         .resume = options.resume,
                         .stop_requested = options.stop_requested,
                         .connect = options.host == nullptr
                                        ? nullptr
                                        : options.host->controller}) {}

  absl::Status Run() {
    RV_RETURN_IF_ERROR(Prepare());
    RV_RETURN_IF_ERROR(member_.Join(plan_->manifest_hash(), /*address=*/""));
    return member_.Conclude(Train());
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
    if (options_.host != nullptr) {
      train_ = options_.host->train;
      test_ = options_.host->test;
    } else {
      RV_ASSIGN_OR_RETURN(train_,
                          OpenDataset(plan_->dataset_options(), Split::kTrain));
      RV_ASSIGN_OR_RETURN(test_,
                          OpenDataset(plan_->dataset_options(), Split::kTest));
    }
    RV_RETURN_IF_ERROR(CheckSize(*train_, plan_->dataset_info().train_size));
    RV_RETURN_IF_ERROR(CheckSize(*test_, plan_->dataset_info().test_size));
    return member_.FindCheckpoints();
  }

  // Everybody lays out the steps by the size that the data set's name promises.
  absl::Status CheckSize(const Dataset& dataset, int64_t expected) const {
    if (dataset.size() == expected) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(config_.data.path, ": ", config_.data.name, " has ",
                     dataset.size(), " images in a split of ", expected));
  }

  // Threads of one machine beyond its cores wait for one another in turns, so
  // the run's workers on it share them.
  int Threads(const v1::Start& start) const {
    const int cores = NumCores();
    const int beside = static_cast<int>(
        std::clamp<uint32_t>(start.workers_on_machine(), 1, cores));
    const auto asked = static_cast<int>(config_.local.threads);
    const int share = std::max(1, cores / beside);
    if (asked > share) {
      spdlog::warn(
          "local.threads is {}, and the {} cores here are {} a worker: more "
          "threads than cores slow each other down",
          asked, cores, share);
    }
    return asked > 0 ? asked : share;
  }

  absl::Status MakeModel(const v1::Start& start) {
    ModelRuntime runtime;
    threads_ = Threads(start);
    runtime.threads = threads_;
    RV_ASSIGN_OR_RETURN(model_, CreateModel(plan_->model_options(), runtime));
    if (model_->ops() == "reference") {
      spdlog::warn("the slow reference operations serve: no fast ones here");
    }
    spdlog::info("{}, {} parameters, {} threads, {} operations",
                 plan_->manifest().model, plan_->manifest().num_parameters(),
                 runtime.threads, model_->ops());
    return absl::OkStatus();
  }

  absl::Status Train() {
    RV_ASSIGN_OR_RETURN(const v1::Start start,
                        member_.session().WaitForStart());
    const auto first_step = static_cast<int64_t>(start.step());
    RV_RETURN_IF_ERROR(member_.BeginAt(first_step));
    RV_RETURN_IF_ERROR(MakeModel(start));
    // Before the shards are dialled: who cannot go on disturbs nobody.
    RV_ASSIGN_OR_RETURN(const TensorFile state, ReadState(first_step));
    RV_RETURN_IF_ERROR(ConnectShards(start));
    const std::vector<ShardStream*> shards = ShardStreams();
    RV_ASSIGN_OR_RETURN(
        pipeline_,
        PushPipeline::Create(
            plan_, {.rank = options_.rank, .threads = threads_}, shards));
    Trainer::Options training;
    training.rank = options_.rank;
    training.first_step = first_step;
    training.schedule_seq =
        start.entries().empty() ? 0 : start.entries(0).seq();
    training.before_commit = options_.before_push;
    RV_RETURN_IF_ERROR(Restore(first_step, state, &training.voided));

    ControllerSession session(&member_.session(), gate());
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
      return member_.SaveCheckpoint(
          step, MakeWorkerCheckpoint(voided, *model_, *pipeline_));
    };
    spdlog::info("training from step {} of {}", first_step,
                 plan_->total_steps());
    const CoreGate::Hold hold(gate());
    return Trainer(std::move(parts), std::move(training)).Run();
  }

  CoreGate* gate() const {
    return options_.host == nullptr ? nullptr : options_.host->gate;
  }

  // What the training loop talks to.
  std::vector<ShardStream*> ShardStreams() {
    std::vector<ShardStream*> shards;
    shards.reserve(streams_.size());
    for (const auto& stream : streams_) {
      shards.push_back(stream.get());
      if (config_.report.frames_every == 0) continue;
      recorders_.push_back(std::make_unique<FrameRecorder>(
          stream.get(),
          FrameRecorder::Options{.dir = RunPaths(options_.run_dir).frames(),
                                 .rank = options_.rank,
                                 .every = config_.report.frames_every}));
      shards.back() = recorders_.back().get();
    }
    return shards;
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
      if (options_.host != nullptr) {
        connect.connect = options_.host->shards[static_cast<size_t>(s)];
        connect.gate = options_.host->gate;
      }
      connect.connect_timeout = config_.cluster.join_timeout;
      connect.patience = config_.cluster.lease;
      connect.cancelled = [this] { return member_.session().Ended(nullptr); };
      connect.elements = plan_->partition().elements_of_shard(s);
      connect.statistics = plan_->manifest().num_buffer_elements();
      v1::ExchangeHello& hello = connect.hello;
      hello.set_protocol_min(kOldestProtocolVersion);
      hello.set_protocol_max(kProtocolVersion);
      hello.set_job(member_.session().welcome().job());
      hello.set_config_hash(member_.config_hash());
      hello.set_manifest_hash(plan_->manifest_hash());
      hello.set_rank(static_cast<uint32_t>(options_.rank));
      hello.set_incarnation(member_.session().welcome().incarnation());
      hello.set_next_step(start.step());
      RV_ASSIGN_OR_RETURN(auto stream, ExchangeClient::Connect(connect));
      streams_.push_back(std::move(stream));
    }
    std::vector<ExchangeClient*> streams;
    streams.reserve(streams_.size());
    for (const auto& stream : streams_) streams.push_back(stream.get());
    member_.session().OnEnd([streams](const absl::Status& result) {
      const absl::Status reason =
          result.ok() ? absl::CancelledError("the run has ended")
                      : Annotate(result, "the run has ended");
      for (ExchangeClient* const stream : streams) stream->Cancel(reason);
    });
    return absl::OkStatus();
  }

  absl::StatusOr<TensorFile> ReadState(int64_t step) {
    if (step == 0) return TensorFile();
    return member_.LoadCheckpoint(step);
  }

  absl::Status Restore(int64_t step, const TensorFile& state,
                       VoidCounts* voided) {
    if (step == 0) {
      InitializeModel(*model_, static_cast<uint64_t>(config_.train.seed));
      return absl::OkStatus();
    }
    return Annotate(RestoreWorkerCheckpoint(state, voided, *model_, *pipeline_),
                    member_.PathOfCheckpoint(step));
  }

  const Config config_;
  const WorkerOptions options_;
  std::shared_ptr<const RunPlan> plan_;
  std::shared_ptr<const Dataset> train_;
  std::shared_ptr<const Dataset> test_;
  std::unique_ptr<Model> model_;
  int threads_ = 1;
  // The session's end cancels the streams: it goes first.
  std::vector<std::unique_ptr<ExchangeClient>> streams_;
  std::vector<std::unique_ptr<FrameRecorder>> recorders_;  // of streams_
  std::unique_ptr<PushPipeline> pipeline_;
  RunMember member_;
};

}  // namespace

absl::Status RunWorker(const Config& config, const WorkerOptions& options) {
  return Worker(config, options).Run();
}

}  // namespace rivulet
