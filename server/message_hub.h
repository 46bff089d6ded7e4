// A server's end of all streams of one RPC, as the logic behind it sees them:
// events come in, answers go out by stream number. StreamHub has them over
// gRPC; a process that holds both ends has them without.

#ifndef RIVULET_SERVER_MESSAGE_HUB_H_
#define RIVULET_SERVER_MESSAGE_HUB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace rivulet {

using StreamId = uint64_t;

// Calls never block, and do nothing for a stream that is gone.
template <typename In, typename Out>
class MessageHub {
 public:
  struct Event {
    StreamId stream = 0;
    std::optional<In> message;  // nothing: the client sends no more
    // Why, where the hub has ended the stream: its client does not read.
    absl::Status reason = absl::OkStatus();
  };

  virtual ~MessageHub() = default;

  // The stream is one of the owner's.
  virtual void Admit(StreamId id) = 0;
  // Enqueues an answer, which may be shared among streams.
  virtual void Send(StreamId id, std::shared_ptr<const Out> message) = 0;
  // Ends a stream. Idempotent; the first status counts.
  virtual void End(StreamId id, const absl::Status& status) = 0;
  // The client's address, for messages; empty for a stream that is gone.
  virtual std::string Peer(StreamId id) const = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_MESSAGE_HUB_H_
