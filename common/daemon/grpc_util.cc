#include "common/daemon/grpc_util.h"

#include <string>

#include "absl/strings/string_view.h"

namespace rivulet {
namespace {

// A link that is silent for this long is pinged, and is given up when the
// answer takes longer than the time-out.
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveTimeoutMs = 20000;

constexpr int kInitialBackoffMs = 100;
constexpr int kMaxBackoffMs = 5000;

// Above every message that is sent here, see kChunkBytes.
constexpr int kMaxMessageBytes = 4 << 20;

constexpr int64_t kMessagePrefixBytes = 5;
constexpr int64_t kDataFrameBytes = 16384;
constexpr int64_t kFrameHeaderBytes = 9;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  // The two enumerations have the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A stream may be silent for long, for instance during an evaluation.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kInitialBackoffMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  // Payloads are packed already.
  args.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  // Daemons dial what the config says, whatever the environment holds.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A channel has its own connection, so that each peer's back-off and each
  // stream's flow control are its own.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   args);
}

void ConfigureServer(grpc::ServerBuilder* builder) {
  // By default a server answers a client that pings an idle connection by
  // GOAWAY "too_many_pings".
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // By default two processes may listen on one port and share its connections;
  // here a busy port is an error.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
}

int64_t WireBytes(int64_t message_bytes) {
  const int64_t stream_bytes = message_bytes + kMessagePrefixBytes;
  const int64_t frames = (stream_bytes + kDataFrameBytes - 1) / kDataFrameBytes;
  return stream_bytes + frames * kFrameHeaderBytes;
}

}  // namespace rivulet
