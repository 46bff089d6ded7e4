// All streams of one bidirectional RPC, seen by the one thread that owns the
// service's state: messages of all clients come out of Next() in order of
// arrival, answers go in by stream number. So a service's logic has no locks
// and no callbacks, and gRPC's threads only move messages.
//
//   StreamHub<WorkerMessage, ShardMessage> hub(limits);
//   // service: Exchange(context) { return hub.Accept(context); }
//   while (auto event = hub.Next(absl::Milliseconds(100))) {
//     if (event->message) {
//       hub.Send(event->stream, answer);
//     } else {  // it left
//       hub.End(event->stream, absl::OkStatus());
//     }
//   }
//   hub.Stop(); server->Shutdown(...);
//
// Flow control: a stream that has `max_unread` messages waiting is not read
// further, which stops the sender by HTTP/2's windows; a client that lets more
// than `max_unwritten` answers, or `max_unwritten_bytes` of them, pile up is
// ended with ResourceExhausted. A stranger, that is, a stream that the owner
// has not admitted, is read one message at a time, and ended once `patience` is
// over.
//
// Thread-safe; Next() is for one thread. Reactors belong to gRPC and delete
// themselves in OnDone; the destructor waits for the last, so Stop() the hub
// and shut the server down first.

#ifndef RIVULET_SERVER_STREAM_HUB_H_
#define RIVULET_SERVER_STREAM_HUB_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/sync.h"
#include "common/daemon/grpc_util.h"
#include "server/message_hub.h"

namespace rivulet {

struct StreamLimits {
  size_t max_streams = 2048;
  size_t max_unread = 4;  // messages of one stream
  // Answers of one stream that its client has not taken, the one that is being
  // written included. The default is for small messages.
  size_t max_unwritten = 65536;
  int64_t max_unwritten_bytes = int64_t{64} << 20;
  absl::Duration patience = absl::Seconds(10);
};

template <typename In, typename Out>
class StreamHub final : public MessageHub<In, Out> {
 public:
  using Event = typename MessageHub<In, Out>::Event;

  explicit StreamHub(StreamLimits limits = {}) : limits_(limits) {}
  StreamHub(const StreamHub&) = delete;
  StreamHub& operator=(const StreamHub&) = delete;

  ~StreamHub() override {
    Stop();
    MutexLock lock(&mu_);
    while (!streams_.empty()) idle_.Wait(&mu_);
  }

  // The handler of the RPC. Owned by gRPC.
  grpc::ServerBidiReactor<In, Out>* Accept(grpc::CallbackServerContext* context)
      ABSL_LOCKS_EXCLUDED(mu_) {
    auto* stream = new Stream(this, context->peer());
    stream->expires = absl::Now() + limits_.patience;
    MutexLock lock(&mu_);
    stream->id = ++last_id_;
    streams_[stream->id] = stream;
    ++strangers_;
    if (stopped_) {
      FinishLocked(stream, absl::UnavailableError("shutting down"));
    } else if (streams_.size() > limits_.max_streams) {
      FinishLocked(stream,
                   absl::ResourceExhaustedError(absl::StrCat(
                       "too many streams: ", streams_.size(),
                       " with this one, the limit is ", limits_.max_streams)));
    } else {
      stream->StartRead(&stream->incoming);
    }
    return stream;
  }

  // The next message or end, waiting for at most `timeout`. Nothing after that,
  // or once stopped. A stream that the owner has ended has no more events.
  std::optional<Event> Next(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time now = absl::Now();
    const absl::Time deadline = now + timeout;
    MutexLock lock(&mu_);
    EndStrangersLocked(now);
    while (true) {
      if (stopped_) return std::nullopt;
      if (!events_.empty()) {
        Event event = std::move(events_.front());
        events_.pop_front();
        if (!event.reason.ok()) return event;
        const auto it = streams_.find(event.stream);
        if (it == streams_.end() || it->second->finish.has_value()) continue;
        if (event.message.has_value()) ReadOnLocked(it->second);
        return event;
      }
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return std::nullopt;
      arrived_.WaitWithTimeout(&mu_, left);
    }
  }

  // MessageHub:
  void Admit(StreamId id) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto it = streams_.find(id);
    if (it == streams_.end() || it->second->admitted) return;
    it->second->admitted = true;
    --strangers_;
    ResumeLocked(it->second);
  }

  void Send(StreamId id, std::shared_ptr<const Out> message) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto it = streams_.find(id);
    if (it == streams_.end() || it->second->finish.has_value()) return;
    Stream* stream = it->second;
    const auto bytes = static_cast<int64_t>(message->ByteSizeLong());
    if (stream->outgoing.size() + 1 > limits_.max_unwritten ||
        stream->unwritten_bytes + bytes > limits_.max_unwritten_bytes) {
      absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
          stream->outgoing.size() + 1, " answers of ",
          stream->unwritten_bytes + bytes,
          " bytes wait to be read, the limit is ", limits_.max_unwritten,
          " and ", limits_.max_unwritten_bytes, " bytes"));
      stream->DropUnwritten();
      FinishLocked(stream, status);
      events_.push_back({id, std::nullopt, std::move(status)});
      arrived_.Signal();
      return;
    }
    stream->outgoing.push_back({std::move(message), bytes});
    stream->unwritten_bytes += bytes;
    WriteOnLocked(stream);
  }

  // With OK, the stream ends after what was sent is written, with an error
  // after the one message that is being written. Until the client has taken
  // that, or its connection ends, the stream still counts.
  void End(StreamId id, const absl::Status& status) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    if (!status.ok()) it->second->DropUnwritten();
    FinishLocked(it->second, status);
  }

  std::string Peer(StreamId id) const override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto it = streams_.find(id);
    return it == streams_.end() ? std::string() : it->second->peer;
  }

  // Streams that are not done yet.
  size_t num_streams() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return streams_.size();
  }

  // Ends every stream that was not ended, refuses new ones, and wakes Next().
  // Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (stopped_) return;
    stopped_ = true;
    for (auto& [id, stream] : streams_) {
      if (!stream->finish.has_value()) {
        stream->DropUnwritten();
        FinishLocked(stream, absl::UnavailableError("shutting down"));
      }
    }
    arrived_.SignalAll();
  }

 private:
  struct Answer {
    std::shared_ptr<const Out> message;
    int64_t bytes = 0;
  };

  // Fields are guarded by the hub's mutex, but for `incoming`, which is gRPC's
  // while a read is outstanding.
  struct Stream final : public grpc::ServerBidiReactor<In, Out> {
    Stream(StreamHub* owner, std::string peer_address)
        : hub(owner), peer(std::move(peer_address)) {}

    void OnReadDone(bool ok) override { hub->ReadDone(this, ok); }
    void OnWriteDone(bool ok) override { hub->WriteDone(this, ok); }
    void OnDone() override {
      hub->Done(this);
      delete this;
    }

    // The message being written stays until gRPC is done with it.
    void DropUnwritten() {
      while (outgoing.size() > (writing ? size_t{1} : size_t{0})) {
        unwritten_bytes -= outgoing.back().bytes;
        outgoing.pop_back();
      }
    }

    StreamHub* const hub;
    const std::string peer;
    StreamId id = 0;
    In incoming;
    absl::Time expires;  // unless admitted
    bool admitted = false;
    size_t unread = 0;
    bool paused = false;
    bool writing = false;  // outgoing.front() is with gRPC
    bool finished = false;
    std::deque<Answer> outgoing;
    int64_t unwritten_bytes = 0;         // of outgoing
    std::optional<absl::Status> finish;  // wanted, once nothing is unwritten
  };

  void ReadDone(Stream* stream, bool ok) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (stream->finish.has_value()) return;
    if (!ok) {
      events_.push_back({stream->id, std::nullopt});
    } else {
      events_.push_back({stream->id, std::move(stream->incoming)});
      stream->incoming = In();
      ++stream->unread;
      stream->paused = true;
      ResumeLocked(stream);
    }
    arrived_.Signal();
  }

  void WriteDone(Stream* stream, bool ok) ABSL_LOCKS_EXCLUDED(mu_) {
    // Freed outside the lock: it may be large.
    Answer written;
    MutexLock lock(&mu_);
    stream->writing = false;
    written = std::move(stream->outgoing.front());
    stream->outgoing.pop_front();
    stream->unwritten_bytes -= written.bytes;
    if (!ok) stream->DropUnwritten();
    WriteOnLocked(stream);
  }

  void Done(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (!stream->admitted) --strangers_;
    streams_.erase(stream->id);
    if (streams_.empty()) idle_.SignalAll();
  }

  void ReadOnLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    --stream->unread;
    ResumeLocked(stream);
  }

  // Reads on where the stream may have another message waiting.
  void ResumeLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const size_t limit = stream->admitted ? limits_.max_unread : 1;
    if (!stream->paused || stream->unread >= limit) return;
    if (stream->finish.has_value()) return;
    stream->paused = false;
    stream->StartRead(&stream->incoming);
  }

  void EndStrangersLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (strangers_ == 0) return;
    for (auto& [id, stream] : streams_) {
      if (stream->admitted || now < stream->expires) continue;
      // What has come and waits here is the owner's delay, not the stranger's.
      if (stream->finish.has_value() || stream->unread > 0) continue;
      stream->DropUnwritten();
      FinishLocked(stream, absl::DeadlineExceededError(absl::StrCat(
                               "no valid hello within ",
                               absl::FormatDuration(limits_.patience))));
    }
  }

  // One write at a time; the end of the stream after the last.
  void WriteOnLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (stream->writing || stream->finished) return;
    if (!stream->outgoing.empty()) {
      stream->writing = true;
      stream->StartWrite(stream->outgoing.front().message.get());
    } else if (stream->finish.has_value()) {
      stream->finished = true;
      stream->Finish(ToGrpcStatus(*stream->finish));
    }
  }

  void FinishLocked(Stream* stream, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!stream->finish.has_value()) stream->finish = status;
    WriteOnLocked(stream);
  }

  const StreamLimits limits_;
  mutable Mutex mu_;
  CondVar arrived_;
  CondVar idle_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  StreamId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  size_t strangers_ ABSL_GUARDED_BY(mu_) = 0;  // in streams_
  std::map<StreamId, Stream*> streams_ ABSL_GUARDED_BY(mu_);
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_STREAM_HUB_H_
