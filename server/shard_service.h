// Shard.Exchange as a gRPC service: hands each stream to the hub and nothing
// else; ExchangeLoop is what happens with the messages. Thread-safe.

#ifndef RIVULET_SERVER_SHARD_SERVICE_H_
#define RIVULET_SERVER_SHARD_SERVICE_H_

#include "proto/exchange.grpc.pb.h"
#include "server/exchange_loop.h"

namespace rivulet {

class ShardService final : public v1::Shard::CallbackService {
 public:
  explicit ShardService(StreamLimits limits = {}) : hub_(limits) {}

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
