#include "common/daemon/grpc_util.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(GrpcUtilTest, StatusesKeepCodeAndMessageBothWays) {
  for (int code = 0; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    const std::string message = code == 0 ? "" : "shard 3: gone";
    const absl::Status status(absl_code, message);
    const grpc::Status grpc_status = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(grpc_status.error_code()), code);
    EXPECT_EQ(grpc_status.error_message(), message);
    EXPECT_EQ(FromGrpcStatus(grpc_status), status);
  }
  EXPECT_EQ(ToGrpcStatus(absl::DataLossError("x")).error_code(),
            grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("x")).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST(GrpcUtilTest, AStatusWithoutWordsSaysItsCode) {
  EXPECT_EQ(FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, "")),
            absl::AbortedError("ended with ABORTED"));
  EXPECT_EQ(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "")),
            absl::UnimplementedError("ended with UNIMPLEMENTED: something else "
                                     "answers at this address"));
  EXPECT_EQ(FromGrpcStatus(grpc::Status::OK), absl::OkStatus());
}

TEST(GrpcUtilTest, WireBytesCountPrefixAndFrames) {
  EXPECT_EQ(WireBytes(0), 5 + 9);
  EXPECT_EQ(WireBytes(100), 100 + 5 + 9);
  EXPECT_EQ(WireBytes(16384 - 5), 16384 + 9);
  EXPECT_EQ(WireBytes(16384 - 4), 16385 + 2 * 9);
  EXPECT_EQ(WireBytes(1 << 20), (1 << 20) + 5 + 65 * 9);
}

TEST(GrpcUtilTest, CountersAddUpOverThreads) {
  ByteCounter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) counter.Count(100, 60);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.wire(), 4000 * 114);
  EXPECT_EQ(counter.payload(), 4000 * 60);
}

// A server that answers nothing, on a free port of loopback.
class SilentServer {
 public:
  // `configured` false: gRPC's defaults, for comparison.
  explicit SilentServer(bool configured, int port = 0) {
    grpc::ServerBuilder builder;
    if (configured) ConfigureServer(&builder);
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port),
                             grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  ~SilentServer() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  bool listens() const { return server_ != nullptr && port_ != 0; }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;
  grpc::CallbackGenericService service_;
  std::unique_ptr<grpc::Server> server_;
};

std::chrono::system_clock::time_point After(absl::Duration delay) {
  return absl::ToChronoTime(absl::Now() + delay);
}

TEST(GrpcUtilTest, ChannelsConnect) {
  const SilentServer server(/*configured=*/true);
  ASSERT_TRUE(server.listens());
  const auto channel = MakeChannel(server.address());
  EXPECT_TRUE(channel->WaitForConnected(After(absl::Seconds(10))));
}

TEST(GrpcUtilTest, ABusyPortIsRefused) {
  const SilentServer first(/*configured=*/true);
  ASSERT_TRUE(first.listens());
  const SilentServer second(/*configured=*/true, first.port());
  EXPECT_FALSE(second.listens());
}

// What a server answers to twenty HTTP/2 pings on an idle connection: the
// number of acknowledgements, or -1 when it drops the connection (GOAWAY).
// gRPC's own client pings once a second at most, so this one speaks for itself.
int AnsweredPings(const SilentServer& server) {
  constexpr int kPings = 20;
  constexpr unsigned char kPing = 6, kGoAway = 7;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(fd);
    return 0;
  }
  const auto send_bytes = [fd](const std::string& bytes) {
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  };
  const std::string ping = std::string("\0\0\x8\6\0\0\0\0\0", 9) + "12345678";
  send_bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  send_bytes(std::string("\0\0\0\4\0\0\0\0\0", 9));  // empty SETTINGS
  send_bytes(ping);
  int acknowledged = 0;
  unsigned char header[9];
  while (acknowledged < kPings &&
         recv(fd, header, sizeof(header), MSG_WAITALL) == sizeof(header)) {
    if (header[3] == kGoAway) {
      acknowledged = -1;
      break;
    }
    if (header[3] == kPing) {
      ++acknowledged;
      send_bytes(ping);
    }
    std::vector<char> rest((header[0] << 16) + (header[1] << 8) + header[2]);
    if (!rest.empty()) recv(fd, rest.data(), rest.size(), MSG_WAITALL);
  }
  close(fd);
  return acknowledged;
}

TEST(GrpcUtilTest, ServersDoNotDropClientsForTheirPings) {
  EXPECT_EQ(AnsweredPings(SilentServer(/*configured=*/true)), 20);
  // Otherwise the test would prove nothing.
  EXPECT_EQ(AnsweredPings(SilentServer(/*configured=*/false)), -1);
}

}  // namespace
}  // namespace rivulet
