#include "server/shard_daemon.h"

#include <spdlog/spdlog.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "server/exchange_loop.h"
#include "server/listen.h"
#include "server/shard_member.h"
#include "server/shard_service.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// How long workers may take to leave after the end.
constexpr absl::Duration kLeaveGrace = absl::Seconds(2);

class Shard {
 public:
  Shard(const Config& config, const ShardOptions& options)
      : config_(config),
        options_(options),
        member_(config, {.role = v1::ROLE_SHARD,
                         .index = options.shard,
                         .run_dir = options.run_dir,
                         .resume = options.resume,
                         .stop_requested = options.stop_requested}) {}
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  ~Shard() {
    if (service_.has_value()) service_->hub().Stop();
    if (listener_.server == nullptr) return;
    listener_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(200));
    listener_.server->Wait();
  }

  absl::Status Run() {
    RV_RETURN_IF_ERROR(Prepare());
    RV_ASSIGN_OR_RETURN(listener_, Listen(config_.local.listen, "local.listen",
                                          &*service_, config_.cluster.lease));
    if (options_.on_listening) options_.on_listening(listener_.address);
    RV_ASSIGN_OR_RETURN(const std::string address, AdvertisedAddress());
    RV_RETURN_IF_ERROR(member_.Join(address));
    spdlog::info("listening on {}", listener_.address);
    absl::Status result = member_.Conclude(Serve());
    LetWorkersLeave();
    return result;
  }

 private:
  // All that can fail without anybody else.
  absl::Status Prepare() {
    RV_RETURN_IF_ERROR(member_.Prepare());
    service_.emplace(ExchangeLimits(member_.core()));
    return absl::OkStatus();
  }

  // Where workers dial.
  absl::StatusOr<std::string> AdvertisedAddress() const {
    if (!config_.local.advertise.empty()) return config_.local.advertise;
    if (absl::StartsWith(listener_.address, "0.0.0.0:") ||
        absl::StartsWith(listener_.address, "[::]:")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "local.listen is ", config_.local.listen,
          ", which workers cannot dial: write local.advertise, this machine's "
          "host:port as the workers see it"));
    }
    return listener_.address;
  }

  // From the start to the verdict.
  absl::Status Serve() {
    RV_RETURN_IF_ERROR(member_.Begin(&service_->hub()));
    absl::Status verdict;
    while (!member_.Ended(&verdict)) {
      auto event = service_->hub().Next(kPoll);
      if (event.has_value()) {
        RV_RETURN_IF_ERROR(member_.loop()->Handle(*std::move(event)));
      }
      member_.loop()->Tick(absl::Now());
    }
    return verdict;
  }

  // After an orderly end the streams close from the workers' side.
  void LetWorkersLeave() {
    const absl::Time deadline = absl::Now() + kLeaveGrace;
    ExchangeLoop* const loop = member_.loop();
    while (loop != nullptr && loop->finished() &&
           service_->hub().num_streams() > 0 && absl::Now() < deadline) {
      auto event = service_->hub().Next(kPoll);
      if (!event.has_value()) continue;
      if (absl::Status status = loop->Handle(*std::move(event)); !status.ok()) {
        spdlog::warn("after the end: {}", status.ToString());
        return;
      }
    }
  }

  const Config config_;
  const ShardOptions options_;
  std::optional<ShardService> service_;  // outlives the server
  Listener listener_;
  ShardMember member_;
};

}  // namespace

absl::Status RunShard(const Config& config, const ShardOptions& options) {
  return Shard(config, options).Run();
}

}  // namespace rivulet
