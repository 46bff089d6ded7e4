// A MessageStream over gRPC, seen from the client: what the control path and
// the data path share. Writes are queued and go out one at a time; reads
// are handed to a listener one at a time, and the next is started only when the
// listener has returned, which is the flow control.
//
//   class Impl : public ClientStream<Out, In>::Listener { ... };
//   ClientStream<Out, In> stream("shard 0 at 10.0.0.7:7071", limit, &impl);
//   stub->async()->Exchange(stream.context(), &stream);
//   stream.Start();
//   stream.Write(message, payload_bytes);
//   stream.Close(absl::Seconds(5));
//
// Thread-safe after Start.

#ifndef RIVULET_COMMON_DAEMON_CLIENT_STREAM_H_
#define RIVULET_COMMON_DAEMON_CLIENT_STREAM_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/message_stream.h"

namespace rivulet {

template <typename Out, typename In>
class ClientStream final : public grpc::ClientBidiReactor<Out, In>,
                           public MessageStream<Out, In> {
 public:
  // Called from gRPC's threads.
  using Listener = typename MessageStream<Out, In>::Listener;

  // `peer` names the other end in messages. What is queued beyond
  // `max_queued_bytes` ends the stream with ResourceExhausted: a peer that lets
  // so much pile up does not read any more. `listener` is borrowed.
  ClientStream(std::string peer, int64_t max_queued_bytes, Listener* listener)
      : peer_(std::move(peer)),
        max_queued_bytes_(max_queued_bytes),
        listener_(listener) {}

  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;
  ~ClientStream() override { Close(absl::ZeroDuration()); }

  grpc::ClientContext* context() { return &context_; }

  // Begins the call that the stub's async method has bound to this object.
  void Start() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      started_ = true;
      // Writes are started from outside reactions: the hold keeps the call
      // alive for them.
      this->AddHold();
      this->StartRead(&incoming_);
      MaybeWrite();
    }
    this->StartCall();
  }

  // MessageStream:
  void Write(Out message, int64_t payload_bytes) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    Enqueue(std::move(message), payload_bytes, /*urgent=*/false);
  }
  void WriteFirst(Out message) override ABSL_LOCKS_EXCLUDED(mu_) {
    Enqueue(std::move(message), 0, /*urgent=*/true);
  }

  void Cancel(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    CancelLocked(reason);
  }

  void Close(absl::Duration grace) override ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = absl::Now() + grace;
    MutexLock lock(&mu_);
    closing_ = true;
    if (!started_) return;
    MaybeWrite();
    while (!done_) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) break;
      done_changed_.WaitWithTimeout(&mu_, left);
    }
    if (!done_)
      CancelLocked(absl::CancelledError(absl::StrCat(peer_, ": closed")));
    // gRPC always calls OnDone after a cancellation.
    while (!done_) done_changed_.Wait(&mu_);
  }

  const ByteCounter& sent() const override { return sent_; }
  const ByteCounter& received() const override { return received_; }

  // Reactions, called by gRPC.
  void OnReadDone(bool ok) override {
    if (!ok) {
      MutexLock lock(&mu_);
      DieLocked();
      return;
    }
    received_.Count(static_cast<int64_t>(incoming_.ByteSizeLong()),
                    listener_->PayloadBytes(incoming_));
    absl::Status status = listener_->OnMessage(std::move(incoming_));
    if (!status.ok()) Cancel(status);
    incoming_.Clear();
    this->StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.message.Clear();
    if (!ok) {
      // The status that explains it comes with OnDone.
      DieLocked();
      return;
    }
    MaybeWrite();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status result;
    {
      MutexLock lock(&mu_);
      DieLocked();
      result = reason_.ok() ? Annotate(FromGrpcStatus(status), peer_) : reason_;
    }
    listener_->OnEnd(result);
    MutexLock lock(&mu_);
    done_ = true;
    done_changed_.SignalAll();
  }

 private:
  struct Outgoing {
    Out message;
    int64_t bytes = 0;
    int64_t payload_bytes = 0;
  };

  void Enqueue(Out message, int64_t payload_bytes, bool urgent)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const auto bytes = static_cast<int64_t>(message.ByteSizeLong());
    MutexLock lock(&mu_);
    if (closing_ || dead_) return;
    if (queued_bytes_ + bytes > max_queued_bytes_) {
      CancelLocked(absl::ResourceExhaustedError(
          absl::StrCat(peer_, ": ", queued_bytes_ + bytes,
                       " bytes wait to be sent, the limit is ",
                       max_queued_bytes_, "; it does not read")));
      return;
    }
    queued_bytes_ += bytes;
    Outgoing item{std::move(message), bytes, payload_bytes};
    if (urgent) {
      queue_.push_front(std::move(item));
    } else {
      queue_.push_back(std::move(item));
    }
    MaybeWrite();
  }

  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!started_ || writing_ || dead_) return;
    if (!queue_.empty()) {
      outgoing_ = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= outgoing_.bytes;
      writing_ = true;
      sent_.Count(outgoing_.bytes, outgoing_.payload_bytes);
      this->StartWrite(&outgoing_.message);
    } else if (closing_ && !half_closed_) {
      half_closed_ = true;
      this->StartWritesDone();
      ReleaseHold();
    }
  }

  void CancelLocked(const absl::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reason_.ok()) reason_ = reason;
    if (started_) context_.TryCancel();
  }

  // Nothing is written any more.
  void DieLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    dead_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    ReleaseHold();
  }

  void ReleaseHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (hold_released_) return;
    hold_released_ = true;
    this->RemoveHold();
  }

  const std::string peer_;
  const int64_t max_queued_bytes_;
  Listener* const listener_;
  grpc::ClientContext context_;  // TryCancel is thread-safe
  ByteCounter sent_;
  ByteCounter received_;
  In incoming_;  // belongs to the one read that is under way

  Mutex mu_;
  CondVar done_changed_;
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mu_);
  int64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Belongs to gRPC from StartWrite to OnWriteDone.
  Outgoing outgoing_ ABSL_GUARDED_BY(mu_);
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool hold_released_ ABSL_GUARDED_BY(mu_) = false;
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CLIENT_STREAM_H_
