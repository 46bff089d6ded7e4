#include "server/controller/controller.h"

#include <spdlog/spdlog.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/daemon/logging.h"
#include "server/controller/controller_service.h"

namespace rivulet {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kPublishEvery = absl::Milliseconds(250);
// How long the daemons may take to read the end and leave.
constexpr absl::Duration kLeaveGrace = absl::Seconds(5);
constexpr int kEventsATick = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(
    const Config& config, const std::string& run_dir, bool resume) {
  RV_ASSIGN_OR_RETURN(std::unique_ptr<RunRecord> record,
                      RunRecord::Create(config, run_dir, resume));
  return std::unique_ptr<Controller>(new Controller(std::move(record)));
}

Controller::Controller(std::unique_ptr<RunRecord> record)
    : record_(std::move(record)) {}

Controller::~Controller() { Shutdown(); }

absl::StatusOr<std::string> Controller::Start() {
  RV_CHECK(service_ == nullptr) << "Start() a second time";
  service_ = std::make_unique<ControllerService>();
  const ClusterConfig& cluster = record_->plan().config().cluster;
  RV_ASSIGN_OR_RETURN(listener_,
                      Listen(cluster.controller, "cluster.controller",
                             service_.get(), cluster.lease));
  // What comes meanwhile waits for Run().
  RV_RETURN_IF_ERROR(record_->Write());
  return listener_.address;
}

absl::Status Controller::Run() {
  RV_CHECK(listener_.server != nullptr) << "Run() before Start()";
  SetLogIdentity(record_->job(), record_->generation());
  spdlog::info("listening on {}, run folder {}", listener_.address,
               record_->paths().dir());
  RunCoordinator coordinator(record_->CoordinatorParts(&service_->hub()),
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
