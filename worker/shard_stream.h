// What a worker needs of a shard during training. ExchangeClient is the real
// one; tests put simpler ones in its place.

#ifndef RIVULET_WORKER_SHARD_STREAM_H_
#define RIVULET_WORKER_SHARD_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/daemon/grpc_util.h"
#include "proto/exchange.pb.h"

namespace rivulet {

// One shard's update of one step, whole.
struct ReceivedUpdate {
  int64_t step = 0;
  std::string bytes;  // frames laid end to end
  v1::UpdateEnd end;
};

// Sends never block and report nothing: what goes wrong with the stream comes
// out of the next wait. Thread-safe.
class ShardStream {
 public:
  virtual ~ShardStream() = default;

  virtual int shard() const = 0;

  // `frames` are whole frames; the commit ends the push of `step`.
  virtual void SendPush(int64_t step, std::string frames) = 0;
  virtual void SendCommit(int64_t step, std::string frames,
                          const v1::Commit& commit) = 0;
  virtual void SendBoundary(int64_t step, uint64_t schedule_seq) = 0;
  // All buffers end to end. To shard 0 only.
  virtual void SendStatistics(int64_t step, absl::Span<const float> values) = 0;

  // Blocks until the update of `step` is there, the stream has ended (its
  // reason, naming the shard), or Cancel.
  virtual absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t step) = 0;
  virtual absl::StatusOr<std::vector<float>> WaitForStatistics(
      int64_t step) = 0;

  // Wakes who waits, with `reason`, and ends the stream. Does not block.
  virtual void Cancel(const absl::Status& reason) = 0;

  virtual const ByteCounter& sent() const = 0;
  virtual const ByteCounter& received() const = 0;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_SHARD_STREAM_H_
