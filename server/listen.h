// Starts a gRPC server on "host:port" and says clearly why it cannot: gRPC
// itself logs a stack of details and returns null.

#ifndef RIVULET_SERVER_LISTEN_H_
#define RIVULET_SERVER_LISTEN_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/grpc_util.h"

namespace rivulet {

struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // host:port with the port that was bound
};

// Serves `service` (borrowed; outlives the server). Port 0 picks a free port.
// Unavailable for a busy port; InvalidArgument for what is not host:port, a
// name that does not resolve, an address that this machine does not have, or a
// port that this user may not bind. `key` is the config key to name in
// messages; a client that does not answer for `patience` is given up.
absl::StatusOr<Listener> Listen(const std::string& address,
                                const std::string& key, grpc::Service* service,
                                absl::Duration patience = kDefaultPatience);

}  // namespace rivulet

#endif  // RIVULET_SERVER_LISTEN_H_
