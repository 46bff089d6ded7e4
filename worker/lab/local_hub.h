// A MessageHub and the clients' ends of its streams in one process: a message
// is handled by the thread that sends it, and its answers are with their
// receivers when the send returns. No sockets, no threads, no serialization;
// what the messages would cost on a wire is counted as over gRPC.
//
//   LocalHub<v1::WorkerMessage, v1::ShardMessage> hub("shard 0");
//   hub.Open([&](auto event) { loop.Handle(std::move(event)); });
//   Connector<...> connect = [&](auto* listener) {
//     return hub.Connect("worker 1", listener);
//   };
//
// The handler has the hub's turn: one event is handled at a time, and what else
// needs the state behind the handler takes its turn by InTurn(). A handler may
// send on streams of other hubs, as long as nobody sends the other way round:
// shards send to the controller, which sends to nobody.
//
// Thread-safe, but for the methods of MessageHub, which are for whoever has the
// turn. Outlives its streams.

#ifndef RIVULET_WORKER_LAB_LOCAL_HUB_H_
#define RIVULET_WORKER_LAB_LOCAL_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/message_stream.h"
#include "server/message_hub.h"

namespace rivulet {

// In: what clients send; Out: what they get.
template <typename In, typename Out>
class LocalHub final : public MessageHub<In, Out> {
 public:
  using Event = typename MessageHub<In, Out>::Event;
  using Listener = typename MessageStream<In, Out>::Listener;

  // `name` is what clients call this end in messages.
  explicit LocalHub(std::string name) : name_(std::move(name)) {}
  LocalHub(const LocalHub&) = delete;
  LocalHub& operator=(const LocalHub&) = delete;
  ~LocalHub() override { RV_CHECK(streams_.empty()) << name_; }

  // What clients have sent waits, with them, until here.
  void Open(std::function<void(Event)> handler) ABSL_LOCKS_EXCLUDED(turn_) {
    MutexLock lock(&turn_);
    handler_ = std::move(handler);
    opened_.SignalAll();
  }

  // Ends every stream that there is or will be with `reason`, which is no OK.
  // Idempotent.
  void Shut(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(turn_) {
    MutexLock lock(&turn_);
    if (!shut_.ok()) return;
    shut_ = reason;
    opened_.SignalAll();
    while (!streams_.empty()) End(streams_.begin()->first, reason);
  }

  // Runs `work` while no event is handled.
  void InTurn(const std::function<void()>& work) ABSL_LOCKS_EXCLUDED(turn_) {
    MutexLock lock(&turn_);
    work();
  }

  // A client's end. `client` is what the handler's messages call it.
  std::unique_ptr<MessageStream<In, Out>> Connect(std::string client,
                                                  Listener* listener) {
    return std::make_unique<Stream>(this, std::move(client), listener);
  }

  // MessageHub:
  void Admit(StreamId) override {}
  void Send(StreamId id, std::shared_ptr<const Out> message) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    if (const auto it = streams_.find(id); it != streams_.end()) {
      it->second->Receive(*message);
    }
  }
  void End(StreamId id, const absl::Status& status) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    Stream* const stream = it->second;
    streams_.erase(it);
    stream->EndWith(Annotate(status, name_));
  }
  std::string Peer(StreamId id) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    const auto it = streams_.find(id);
    return it == streams_.end() ? std::string() : it->second->client();
  }

 private:
  class Stream final : public MessageStream<In, Out> {
   public:
    Stream(LocalHub* hub, std::string client, Listener* listener)
        : hub_(hub), client_(std::move(client)), listener_(listener) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() override { Close(absl::ZeroDuration()); }

    const std::string& client() const { return client_; }

    void Start() override { id_ = hub_->Add(this); }

    void Write(In message, int64_t payload_bytes) override
        ABSL_LOCKS_EXCLUDED(mu_) {
      {
        MutexLock lock(&mu_);
        if (ended_) return;
      }
      sent_.Count(static_cast<int64_t>(message.ByteSizeLong()), payload_bytes);
      hub_->Deliver({id_, std::move(message)});
    }
    void WriteFirst(In message) override { Write(std::move(message), 0); }

    // Not by way of the hub: whoever cancels may be in the middle of its own
    // turn elsewhere. The hub learns of it by Close().
    void Cancel(const absl::Status& reason) override { EndWith(reason); }

    void Close(absl::Duration) override ABSL_LOCKS_EXCLUDED(mu_) {
      if (id_ == 0) return;
      hub_->Deliver({id_, std::nullopt});
      hub_->Remove(id_);
      EndWith(absl::OkStatus());
    }

    const ByteCounter& sent() const override { return sent_; }
    const ByteCounter& received() const override { return received_; }

    void Receive(const Out& message) ABSL_LOCKS_EXCLUDED(mu_) {
      MutexLock lock(&mu_);
      if (ended_) return;
      received_.Count(static_cast<int64_t>(message.ByteSizeLong()),
                      listener_->PayloadBytes(message));
      if (const absl::Status status = listener_->OnMessage(message);
          !status.ok()) {
        ended_ = true;
        listener_->OnEnd(status);
      }
    }

    // The first end counts.
    void EndWith(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
      MutexLock lock(&mu_);
      if (std::exchange(ended_, true)) return;
      listener_->OnEnd(status);
    }

   private:
    LocalHub* const hub_;
    const std::string client_;
    Listener* const listener_;
    StreamId id_ = 0;  // constant once started
    ByteCounter sent_;
    ByteCounter received_;
    // Held while the listener is called: one call at a time, and none after its
    // end. Listeners end other streams, never this one.
    Mutex mu_;
    bool ended_ ABSL_GUARDED_BY(mu_) = false;
  };

  StreamId Add(Stream* stream) ABSL_LOCKS_EXCLUDED(turn_) {
    MutexLock lock(&turn_);
    const StreamId id = ++last_id_;
    streams_[id] = stream;
    if (!shut_.ok()) End(id, shut_);
    return id;
  }

  void Remove(StreamId id) ABSL_LOCKS_EXCLUDED(turn_) {
    MutexLock lock(&turn_);
    streams_.erase(id);
  }

  void Deliver(Event event) ABSL_LOCKS_EXCLUDED(turn_) {
    MutexLock lock(&turn_);
    while (handler_ == nullptr && shut_.ok()) opened_.Wait(&turn_);
    // A stream that was ended has no more events.
    if (!shut_.ok() || !streams_.contains(event.stream)) return;
    handler_(std::move(event));
  }

  const std::string name_;
  Mutex turn_;
  CondVar opened_;
  std::function<void(Event)> handler_ ABSL_GUARDED_BY(turn_);
  absl::Status shut_ ABSL_GUARDED_BY(turn_);
  StreamId last_id_ ABSL_GUARDED_BY(turn_) = 0;
  std::map<StreamId, Stream*> streams_ ABSL_GUARDED_BY(turn_);
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_LAB_LOCAL_HUB_H_
