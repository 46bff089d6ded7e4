// What every gRPC endpoint here shares: status conversion, channel and server
// settings, and the count of bytes on the wire.

#ifndef RIVULET_COMMON_DAEMON_GRPC_UTIL_H_
#define RIVULET_COMMON_DAEMON_GRPC_UTIL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace rivulet {

// The version of the wire protocol. N and N-1 work together.
inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr uint32_t kOldestProtocolVersion = 1;

// Tensor bytes in one message at most; the rest of a message is small, so every
// message stays below gRPC's default limit of 4 MiB.
inline constexpr int64_t kChunkBytes = 1 << 20;

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// How long the other end of a connection may stay without an answer before it
// is given up: a busy machine needs time, a dead one must be noticed. Daemons
// take cluster.lease.
inline constexpr absl::Duration kDefaultPatience = absl::Seconds(30);

// An insecure channel with keepalive that our servers accept.
std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, absl::Duration patience = kDefaultPatience);
// The matching server-side settings.
void ConfigureServer(grpc::ServerBuilder* builder,
                     absl::Duration patience = kDefaultPatience);

// Bytes that one gRPC message of `message_bytes` puts on an HTTP/2 connection:
// the message, gRPC's 5-byte prefix, and a 9-byte header per DATA frame (16 KiB
// each at most).
int64_t WireBytes(int64_t message_bytes);

// Counts one direction of one or more streams. Thread-safe.
class ByteCounter {
 public:
  void Count(int64_t message_bytes, int64_t payload_bytes) {
    wire_.fetch_add(WireBytes(message_bytes), std::memory_order_relaxed);
    payload_.fetch_add(payload_bytes, std::memory_order_relaxed);
  }
  int64_t wire() const { return wire_.load(std::memory_order_relaxed); }
  int64_t payload() const { return payload_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> wire_{0};
  std::atomic<int64_t> payload_{0};
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_GRPC_UTIL_H_
