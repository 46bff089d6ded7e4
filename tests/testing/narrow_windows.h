// HTTP/2 windows that do not grow with the traffic, for tests of what happens
// to a peer that does not read: a message well above kNarrowWindow is then not
// written before its reader asks for it.

#ifndef RIVULET_TESTS_TESTING_NARROW_WINDOWS_H_
#define RIVULET_TESTS_TESTING_NARROW_WINDOWS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace rivulet::testing {

inline constexpr int kNarrowWindow = 65535;  // bytes

// What is sent to the server.
inline void NarrowWindows(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kNarrowWindow);
}

// What is sent to the client; a connection of its own.
inline std::shared_ptr<grpc::Channel> NarrowChannel(
    const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kNarrowWindow);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   args);
}

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_NARROW_WINDOWS_H_
