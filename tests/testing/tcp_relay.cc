#include "tests/testing/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace rivulet::testing {
namespace {

constexpr int kPollMs = 20;

absl::StatusOr<sockaddr_in> ParseAddress(const std::string& address) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(address, absl::MaxSplits(':', 1));
  int port = 0;
  sockaddr_in out = {};
  out.sin_family = AF_INET;
  if (!absl::SimpleAtoi(parts.second, &port) ||
      inet_pton(AF_INET, parts.first.c_str(), &out.sin_addr) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("not an IPv4 host:port: ", address));
  }
  out.sin_port = htons(static_cast<uint16_t>(port));
  return out;
}

int Dial(const std::string& target) {
  const absl::StatusOr<sockaddr_in> address = ParseAddress(target);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!address.ok() || connect(fd, reinterpret_cast<const sockaddr*>(&*address),
                               sizeof(*address)) != 0) {
    close(fd);
    return -1;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

bool WriteAll(int fd, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= sent;
  }
  return true;
}

}  // namespace

struct TcpRelay::Connection {
  int client = -1;
  int server = -1;
  std::atomic<bool> cut{false};
  std::thread thread;
};

TcpRelay::TcpRelay(int listener, std::string address, std::string target)
    : listener_(listener),
      address_(std::move(address)),
      target_(std::move(target)),
      accepter_(&TcpRelay::Accept, this) {}

absl::StatusOr<std::unique_ptr<TcpRelay>> TcpRelay::Start(
    const std::string& target) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd, 16) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::InternalError(absl::StrCat("relay: ", std::strerror(error)));
  }
  return std::unique_ptr<TcpRelay>(new TcpRelay(
      fd, absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), target));
}

TcpRelay::~TcpRelay() {
  stopping_ = true;
  accepter_.join();
  CutConnections();
  std::vector<std::unique_ptr<Connection>> connections;
  {
    MutexLock lock(&mu_);
    connections.swap(connections_);
  }
  for (const auto& connection : connections) connection->thread.join();
  close(listener_);
}

void TcpRelay::SetDelay(absl::Duration delay) {
  delay_us_ = absl::ToInt64Microseconds(delay);
}

void TcpRelay::SetTarget(const std::string& target) {
  MutexLock lock(&mu_);
  target_ = target;
}

void TcpRelay::CutConnections() {
  MutexLock lock(&mu_);
  for (const auto& connection : connections_) connection->cut = true;
}

void TcpRelay::Accept() {
  while (!stopping_) {
    pollfd waiting = {listener_, POLLIN, 0};
    if (poll(&waiting, 1, kPollMs) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    auto connection = std::make_unique<Connection>();
    connection->client = client;
    std::string target;
    {
      MutexLock lock(&mu_);
      target = target_;
    }
    connection->server = Dial(target);
    if (connection->server < 0) {
      close(client);
      continue;
    }
    Connection* const raw = connection.get();
    MutexLock lock(&mu_);
    raw->thread = std::thread([this, raw] { Forward(raw); });
    connections_.push_back(std::move(connection));
  }
}

void TcpRelay::Forward(Connection* connection) {
  const int ends[2] = {connection->client, connection->server};
  std::atomic<int64_t>* const counts[2] = {&to_target_, &from_target_};
  std::vector<char> buffer(1 << 16);
  bool open = true;
  while (open && !connection->cut) {
    pollfd waiting[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
    if (poll(waiting, 2, kPollMs) <= 0) continue;
    for (int from = 0; from < 2; ++from) {
      if (waiting[from].revents == 0) continue;
      const ssize_t got = recv(ends[from], buffer.data(), buffer.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        open = false;
        break;
      }
      *counts[from] += got;
      if (mute_) continue;
      if (delay_us_ > 0) absl::SleepFor(absl::Microseconds(delay_us_.load()));
      open = open && WriteAll(ends[1 - from], buffer.data(), got);
    }
  }
  if (connection->cut) {
    // A reset, as a dropped NAT entry gives, rather than an orderly end.
    const linger reset = {1, 0};
    for (const int fd : ends) {
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
  }
  for (const int fd : ends) close(fd);
}

}  // namespace rivulet::testing
