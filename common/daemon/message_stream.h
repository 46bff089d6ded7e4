// A client's end of a bidirectional stream of messages, whatever carries them:
// gRPC (client_stream.h), or the memory of a process that holds both ends.
//
//   class Impl : public MessageStream<Out, In>::Listener { ... };
//   std::unique_ptr<MessageStream<Out, In>> stream = connect(&impl);
//   stream->Start();
//   stream->Write(message, payload_bytes);
//   stream->Close(absl::Seconds(5));

#ifndef RIVULET_COMMON_DAEMON_MESSAGE_STREAM_H_
#define RIVULET_COMMON_DAEMON_MESSAGE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/daemon/grpc_util.h"

namespace rivulet {

// Thread-safe after Start.
template <typename Out, typename In>
class MessageStream {
 public:
  // Called from any thread, one call at a time; must not block and must not
  // call the stream's Close().
  class Listener {
   public:
    virtual ~Listener() = default;
    // An error cancels the stream, and is what OnEnd then gets; no message
    // follows.
    virtual absl::Status OnMessage(In message) = 0;
    // Bytes of `message` that count as payload.
    virtual int64_t PayloadBytes(const In& message) const = 0;
    // Once, last. OK where the peer ended the stream in order.
    virtual void OnEnd(const absl::Status& status) = 0;
  };

  virtual ~MessageStream() = default;

  // Once, before anything else but Close().
  virtual void Start() = 0;

  // Takes the message over; never waits for the peer to act on it. Dropped once
  // the stream is closing or has ended.
  virtual void Write(Out message, int64_t payload_bytes) = 0;
  // As Write, but ahead of all that waits.
  virtual void WriteFirst(Out message) = 0;

  // Ends the stream at once; `reason` is what OnEnd gets. Does not wait.
  virtual void Cancel(const absl::Status& reason) = 0;

  // Ends the stream from this side after what is queued has been written and
  // the peer has answered, for at most `grace`; cancels it then. Returns when
  // OnEnd has been called. Idempotent.
  virtual void Close(absl::Duration grace) = 0;

  virtual const ByteCounter& sent() const = 0;
  virtual const ByteCounter& received() const = 0;
};

// Makes a stream to a peer that is known to the connector. The listener is
// borrowed for the stream's life.
template <typename Out, typename In>
using Connector = std::function<std::unique_ptr<MessageStream<Out, In>>(
    typename MessageStream<Out, In>::Listener*)>;

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_MESSAGE_STREAM_H_
