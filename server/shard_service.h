// Shard.Exchange as a gRPC service: hands each stream to the hub and nothing
// else; ExchangeLoop is what happens with the messages. Thread-safe.

#ifndef RIVULET_SERVER_SHARD_SERVICE_H_
#define RIVULET_SERVER_SHARD_SERVICE_H_

#include "compression/frame.h"
#include "proto/exchange.grpc.pb.h"
#include "server/exchange_loop.h"
#include "server/shard_core.h"

namespace rivulet {

// What a worker may leave unread: a step's update comes only after its push, so
// a worker that reads has at most one waiting, another one that a repeated push
// asks for, and statistics. Half as much again is room for what surrounds them.
inline StreamLimits ExchangeLimits(const ShardCore& core) {
  StreamLimits limits;
  limits.max_unwritten_bytes = 3 * core.max_push_bytes() +
                               8 * core.plan().manifest().num_buffer_elements();
  return limits;
}

class ShardService final : public v1::Shard::CallbackService {
 public:
  explicit ShardService(const StreamLimits& limits) : hub_(limits) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::ShardMessage>* Exchange(
      grpc::CallbackServerContext* context) override {
    return hub_.Accept(context);
  }

  ExchangeHub& hub() { return hub_; }

 private:
  ExchangeHub hub_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SHARD_SERVICE_H_
