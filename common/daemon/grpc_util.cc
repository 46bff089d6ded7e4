#include "common/daemon/grpc_util.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/daemon/utf8.h"

namespace rivulet {
namespace {

// A link that is silent for half the patience is pinged, and given up when the
// answer takes the whole of it: later than a lease of the same length, whose
// end says more.
int KeepaliveMs(absl::Duration patience) {
  return static_cast<int>(
      std::min<int64_t>(absl::ToInt64Milliseconds(patience / 2), INT_MAX));
}
int KeepaliveTimeoutMs(absl::Duration patience) {
  return static_cast<int>(
      std::min<int64_t>(absl::ToInt64Milliseconds(patience), INT_MAX));
}

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
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  // gRPC says nothing where the other end has no such service.
  return absl::Status(
      code, status.error_message().empty()
                ? absl::StrCat("ended with ", absl::StatusCodeToString(code),
                               code == absl::StatusCode::kUnimplemented
                                   ? ": something else answers "
                                     "at this address"
                                   : "")
                : Printable(status.error_message()));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           absl::Duration patience) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, KeepaliveMs(patience));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KeepaliveTimeoutMs(patience));
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

void ConfigureServer(grpc::ServerBuilder* builder, absl::Duration patience) {
  // By default a server answers a client that pings an idle connection by
  // GOAWAY "too_many_pings".
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              KeepaliveMs(patience));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              KeepaliveTimeoutMs(patience));
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
