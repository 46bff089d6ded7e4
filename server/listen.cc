#include "server/listen.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/grpc_util.h"

namespace rivulet {
namespace {

struct HostPort {
  std::string host;  // without brackets
  std::string port;
};

absl::StatusOr<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is not host:port with a port from 0 to 65535"));
  }
  absl::string_view host(address.data(), colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return HostPort{std::string(host), address.substr(colon + 1)};
}

// Binds and listens for a moment, to learn the reason that gRPC does not tell.
absl::Status Probe(const HostPort& target) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (failed != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host \"", target.host, "\" does not resolve: ", gai_strerror(failed)));
  }
  const absl::Cleanup free_list = [found] { freeaddrinfo(found); };
  int error = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool bound =
        bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1) == 0;
    if (!bound) error = errno;
    close(fd);
    if (bound) return absl::OkStatus();
  }
  const std::string reason = ErrnoText(error);
  switch (error) {
    case EADDRINUSE:
      return absl::UnavailableError(
          absl::StrCat("the port is in use by another process: ", reason,
                       "; choose another, or port 0 for any free one"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(
          absl::StrCat("this machine does not have that address: ", reason,
                       "; use one of its own, or 0.0.0.0 for all"));
    default:
      return absl::InvalidArgumentError(reason);
  }
}

}  // namespace

absl::StatusOr<Listener> Listen(const std::string& address,
                                const std::string& key, grpc::Service* service,
                                absl::Duration patience) {
  const std::string context =
      absl::StrCat("cannot listen on ", address, " (", key, ")");
  auto target = Split(address);
  if (!target.ok()) return Annotate(target.status(), context);
  RV_RETURN_IF_ERROR(Annotate(Probe(*target), context));

  int port = 0;
  grpc::ServerBuilder builder;
  ConfigureServer(&builder, patience);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service);
  Listener listener;
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat(context, ": the port was taken a moment ago"));
  }
  listener.address =
      absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  return listener;
}

}  // namespace rivulet
