// One shard as a member of a run, without the streams to its workers: its
// checkpoints, its session with the controller, and the exchange loop once the
// run has begun.
//
//   ShardMember member(config, {.role = v1::ROLE_SHARD, .index = 1, ...});
//   RV_RETURN_IF_ERROR(member.Prepare());
//   RV_RETURN_IF_ERROR(member.Join(address));
//   RV_RETURN_IF_ERROR(member.Begin(&hub));
//   ... member.loop()->Handle(event) ...
//   return member.Conclude(status);

#ifndef RIVULET_SERVER_SHARD_MEMBER_H_
#define RIVULET_SERVER_SHARD_MEMBER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/config.h"
#include "common/daemon/run_member.h"
#include "common/daemon/run_plan.h"
#include "server/exchange_loop.h"
#include "server/shard_core.h"

namespace rivulet {

// Thread-compatible; OnEnd and Ended are thread-safe once joined.
class ShardMember {
 public:
  ShardMember(const Config& config, RunMember::Options options);
  ShardMember(const ShardMember&) = delete;
  ShardMember& operator=(const ShardMember&) = delete;

  // All that can fail without anybody else: errors of RunPlan::Create,
  // ShardCore::Create and RunMember::FindCheckpoints.
  absl::Status Prepare();
  // `address` is where workers dial. Errors are RunMember::Join's.
  absl::Status Join(const std::string& address);

  // Waits for the run's start, takes up its state, and makes the loop, which
  // answers through `hub` (borrowed). Errors are those of RunMember's loading,
  // or the run's end.
  absl::Status Begin(ExchangeStreams* hub);

  // After Prepare.
  const ShardCore& core() const { return *core_; }
  // Null until Begin.
  ExchangeLoop* loop() { return loop_.has_value() ? &*loop_ : nullptr; }

  // As SessionClient's and RunMember's.
  bool Ended(absl::Status* verdict) const;
  void OnEnd(std::function<void(const absl::Status&)> callback);
  absl::Status Conclude(const absl::Status& own);

 private:
  absl::Status LoadState(int64_t step);

  const Config config_;
  const int shard_;
  std::shared_ptr<const RunPlan> plan_;
  std::unique_ptr<ShardCore> core_;
  RunMember member_;
  std::unique_ptr<ShardControl> control_;
  std::optional<ExchangeLoop> loop_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SHARD_MEMBER_H_
