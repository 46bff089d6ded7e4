#include "server/controller/controller.h"

#include <spdlog/spdlog.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/digest.h"
#include "common/daemon/logging.h"
#include "common/daemon/text_file.h"
#include "models/checkpoint/atomic_file.h"
#include "server/controller/complete_markers.h"
#include "server/controller/controller_service.h"
#include "server/controller/progress_file.h"
#include "server/controller/summary.h"

namespace rivulet {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kPublishEvery = absl::Milliseconds(250);
// How long the daemons may take to read the end and leave.
constexpr absl::Duration kLeaveGrace = absl::Seconds(5);
constexpr int kEventsATick = 1024;

uint64_t NumViews(const ScheduleLog& log) {
  uint64_t views = 0;
  for (const v1::ScheduleEntry& entry : log.entries()) {
    if (entry.has_view()) ++views;
  }
  return views;
}

absl::Status Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  return error ? ErrnoToStatus(error.value(), path, "remove")
               : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(
    const Config& config, const std::string& run_dir, bool resume) {
  RV_ASSIGN_OR_RETURN(std::shared_ptr<const RunPlan> plan,
                      RunPlan::Create(config));
  RV_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Create(run_dir, resume));
  std::unique_ptr<Controller> controller(
      new Controller(std::move(folder), std::move(plan), resume));
  if (resume) RV_RETURN_IF_ERROR(controller->TakeUp());
  return controller;
}

Controller::Controller(RunFolder folder, std::shared_ptr<const RunPlan> plan,
                       bool resume)
    : folder_(std::move(folder)), plan_(std::move(plan)), resume_(resume) {}

Controller::~Controller() { Shutdown(); }

absl::Status Controller::WriteFiles() {
  RV_RETURN_IF_ERROR(folder_.Populate());
  const RunPaths& paths = folder_.paths();
  if (!resume_) {
    // Of a run that never got to its first checkpoint.
    RV_RETURN_IF_ERROR(Remove(paths.schedule()));
    RV_RETURN_IF_ERROR(Remove(paths.progress()));
  }
  if (job_.empty()) job_ = NewJobId();
  RV_RETURN_IF_ERROR(WriteFileAtomically(paths.job(), job_ + "\n"));
  RV_RETURN_IF_ERROR(
      WriteFileAtomically(paths.config(), ToYaml(plan_->config())));
  RV_ASSIGN_OR_RETURN(log_, ScheduleLog::Open(paths.schedule()));
  return absl::OkStatus();
}

// What an earlier part of this run has left.
absl::Status Controller::TakeUp() {
  const RunPaths& paths = folder_.paths();
  const auto read = [](const std::string& path) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> text = ReadTextFile(path);
    if (absl::IsNotFound(text.status())) return std::string();
    if (!text.ok()) return AsRunFolderError(text.status());
    return text;
  };
  RV_ASSIGN_OR_RETURN(const std::string summary, read(paths.summary()));
  if (StatusOfSummary(summary) == "complete") {
    return absl::AlreadyExistsError(absl::StrCat(
        paths.dir(),
        ": the run in this folder is complete; nothing is left to resume"));
  }
  RV_ASSIGN_OR_RETURN(const std::string yaml, read(paths.config()));
  if (!yaml.empty()) {
    RV_ASSIGN_OR_RETURN(const Config old,
                        ParseConfig(yaml, paths.config(), {}));
    const std::string differences = DescribeDifferences(
        paths.config(), CanonicalConfig(old, /*for_resume=*/true), "this start",
        CanonicalConfig(plan_->config(), /*for_resume=*/true));
    if (!differences.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          paths.dir(),
          ": the run in this folder has another config: ", differences,
          "; only keys marked resumable or local may change on --resume"));
    }
  }
  RV_ASSIGN_OR_RETURN(const std::string job, read(paths.job()));
  job_ = std::string(absl::StripAsciiWhitespace(job));
  // A new identity would lock everybody out who has a checkpoint.
  RV_ASSIGN_OR_RETURN(const bool has_begun, HasCompleteCheckpoint(paths));
  if ((has_begun || !job.empty()) && !IsJobId(job_)) {
    return absl::DataLossError(absl::StrCat(
        paths.job(), ": found ", job.size(),
        " bytes that are not a job's identity; expected 32 hexadecimal digits, "
        "as the metadata of any checkpoint has them under \"job\""));
  }
  RV_ASSIGN_OR_RETURN(const std::string progress, read(paths.progress()));
  if (progress.empty() && has_begun) {
    notices_.push_back(absl::StrCat(
        paths.progress(),
        " is missing: the traffic and the time of what is done already are not "
        "known and will not be counted"));
    spdlog::warn("{}", notices_.back());
  }
  if (!progress.empty()) {
    RV_ASSIGN_OR_RETURN(earlier_,
                        ParseProgressJson(paths.progress(), progress));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Controller::Start() {
  RV_CHECK(service_ == nullptr) << "Start() a second time";
  service_ = std::make_unique<ControllerService>();
  const ClusterConfig& cluster = plan_->config().cluster;
  RV_ASSIGN_OR_RETURN(listener_,
                      Listen(cluster.controller, "cluster.controller",
                             service_.get(), cluster.lease));
  // What comes meanwhile waits for Run().
  RV_RETURN_IF_ERROR(AsRunFolderError(WriteFiles()));
  return listener_.address;
}

absl::Status Controller::Run() {
  RV_CHECK(listener_.server != nullptr) << "Run() before Start()";
  const uint64_t generation = NumViews(*log_) + 1;
  SetLogIdentity(job_, generation);
  spdlog::info("listening on {}, run folder {}", listener_.address,
               folder_.paths().dir());
  RunCoordinator coordinator({.plan = plan_,
                              .paths = folder_.paths(),
                              .job = job_,
                              .generation = generation,
                              .earlier = earlier_,
                              .notices = notices_,
                              .hub = &service_->hub(),
                              .log = log_.get()},
                             absl::Now());
  Loop(&coordinator);
  Shutdown();
  return coordinator.result();
}

void Controller::Loop(RunCoordinator* coordinator) {
  SessionHub& hub = service_->hub();
  std::string published;
  absl::Time published_at = absl::InfinitePast();
  absl::Time give_up = absl::InfiniteFuture();
  while (true) {
    // What has come is handled before any lease is judged, but at most so much:
    // a flood from one peer must not keep the others from being judged.
    std::optional<SessionHub::Event> event = hub.Next(kTick);
    for (int i = 0; event.has_value() && i < kEventsATick; ++i) {
      coordinator->Handle(*std::move(event), absl::Now());
      event = hub.Next(absl::ZeroDuration());
    }
    if (event.has_value()) coordinator->Handle(*std::move(event), absl::Now());
    const absl::Time now = absl::Now();
    {
      std::optional<std::string> reason;
      {
        MutexLock lock(&mu_);
        reason = stop_reason_;
      }
      if (reason.has_value()) coordinator->Stop(*reason);
    }
    coordinator->Tick(now);
    if (now - published_at >= kPublishEvery || coordinator->ended()) {
      const v1::RunStatus status = coordinator->Status(now);
      if (status.phase() != v1::RunStatus::WAITING) {
        SetLogStep(static_cast<int64_t>(status.step()));
      }
      std::string bytes = status.SerializeAsString();
      if (bytes != published) {
        service_->watchers().Publish(status);
        published = std::move(bytes);
        published_at = now;
      }
    }
    if (!coordinator->ended()) continue;
    service_->watchers().Close();
    give_up = std::min(give_up, now + kLeaveGrace);
    const bool alone =
        hub.num_streams() == 0 && service_->watchers().num_watchers() == 0;
    if (alone || now >= give_up) return;
  }
}

void Controller::RequestStop(const std::string& reason) {
  MutexLock lock(&mu_);
  if (!stop_reason_.has_value()) stop_reason_ = reason;
}

void Controller::Shutdown() {
  if (service_ == nullptr) return;
  service_->hub().Stop();
  service_->watchers().Close();
  if (listener_.server != nullptr) {
    listener_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(200));
    listener_.server->Wait();
    listener_.server.reset();
  }
  service_.reset();
}

}  // namespace rivulet
