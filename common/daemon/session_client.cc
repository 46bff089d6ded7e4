#include "common/daemon/session_client.h"

#include <algorithm>
#include <map>
#include <thread>  // NOLINT(build/c++11)
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/client_stream.h"
#include "common/daemon/dial.h"
#include "proto/controller.grpc.pb.h"

namespace rivulet {
namespace {

// Enough for the weights of any model that a shard sends at the end; reached
// only when the controller stops reading.
constexpr int64_t kMaxQueuedBytes = int64_t{8} << 30;
constexpr absl::Duration kCloseGrace = absl::Seconds(5);
constexpr absl::Duration kPoll = absl::Milliseconds(50);

absl::Status ToStatus(int code, const std::string& message) {
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace

class SessionClient::Impl final
    : private MessageStream<v1::DaemonMessage,
                            v1::ControllerMessage>::Listener {
 public:
  explicit Impl(const Options& options)
      : controller_(absl::StrCat("the controller at ", options.controller)),
        heartbeat_every_(options.heartbeat_every) {
    if (options.connect != nullptr) {
      stream_ = options.connect(this);
      return;
    }
    stub_ = v1::Controller::NewStub(
        MakeChannel(options.controller, options.patience));
    GrpcStream::Listener* const listener = this;
    auto stream =
        std::make_unique<GrpcStream>(controller_, kMaxQueuedBytes, listener);
    grpc_ = stream.get();
    stream_ = std::move(stream);
  }

  ~Impl() override { Close(); }

  // One try: says hello and waits for the welcome. After a failure only the
  // destructor may follow.
  absl::Status Dial(const v1::Hello& hello, absl::Time deadline,
                    const std::function<bool()>& cancelled) {
    absl::Status status = SayHello(hello, deadline, cancelled);
    if (status.ok()) {
      heartbeat_ = std::thread([this] { Beat(); });
    } else {
      // So that the destructor need not wait for a peer that does not answer.
      stream_->Cancel(status);
    }
    return status;
  }

  // Constant once Dial has succeeded.
  const v1::Welcome& welcome() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return welcome_;
  }

  absl::StatusOr<v1::Start> WaitForStart() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (!started_ && !ended_) changed_.Wait(&mu_);
    if (started_) return start_;
    return result_.ok() ? absl::AbortedError("the run ended before it began")
                        : result_;
  }

  uint64_t newest_seq() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return newest_seq_;
  }

  absl::StatusOr<v1::ScheduleEntry> WaitForEntry(uint64_t seq,
                                                 absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_) {
    RV_CHECK_GE(seq, 1u);
    const absl::Time deadline = absl::Now() + timeout;
    MutexLock lock(&mu_);
    while (newest_seq_ < seq && !ended_) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            absl::StrCat("schedule entry ", seq, " did not come from ",
                         controller_, " within ", absl::FormatDuration(timeout),
                         "; the newest is ", newest_seq_));
      }
      changed_.WaitWithTimeout(&mu_, left);
    }
    if (const auto found = entries_.find(seq); found != entries_.end()) {
      return found->second;
    }
    if (seq <= newest_seq_) {
      return absl::NotFoundError(
          absl::StrCat("schedule entry ", seq,
                       " is older than what this daemon began with"));
    }
    return result_.ok() ? absl::AbortedError(absl::StrCat(
                              "the run ended before schedule entry ", seq))
                        : result_;
  }

  void Send(v1::DaemonMessage message) {
    stream_->Write(std::move(message), 0);
  }

  void SetStep(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    step_ = step;
  }

  absl::Status WaitForFinish() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (!ended_) changed_.Wait(&mu_);
    return result_;
  }

  bool Ended(absl::Status* result) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (ended_ && result != nullptr) *result = result_;
    return ended_;
  }

  void OnEndCall(std::function<void(const absl::Status&)> callback)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::Status result;
    {
      MutexLock lock(&mu_);
      if (!ended_) {
        on_end_.push_back(std::move(callback));
        return;
      }
      result = result_;
    }
    callback(result);
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      closing_ = true;
      changed_.SignalAll();
    }
    MutexLock lock(&close_mu_);
    if (heartbeat_.joinable()) heartbeat_.join();
    stream_->Close(kCloseGrace);
  }

  const ByteCounter& sent() const { return stream_->sent(); }
  const ByteCounter& received() const { return stream_->received(); }

 private:
  using GrpcStream = ClientStream<v1::DaemonMessage, v1::ControllerMessage>;

  int64_t PayloadBytes(const v1::ControllerMessage&) const override {
    return 0;
  }

  absl::Status SayHello(const v1::Hello& hello, absl::Time deadline,
                        const std::function<bool()>& cancelled)
      ABSL_LOCKS_EXCLUDED(mu_) {
    if (grpc_ != nullptr) {
      stub_->async()->Session(grpc_->context(), grpc_);
    }
    stream_->Start();
    v1::DaemonMessage message;
    *message.mutable_hello() = hello;
    stream_->Write(std::move(message), 0);
    while (absl::Now() < deadline) {
      // Without the lock: it is the caller's code.
      if (cancelled != nullptr && cancelled()) {
        return absl::CancelledError(
            absl::StrCat("told to stop while joining ", controller_));
      }
      MutexLock lock(&mu_);
      if (!welcomed_ && !ended_) changed_.WaitWithTimeout(&mu_, kPoll);
      if (welcomed_) return absl::OkStatus();
      if (!ended_) continue;
      return result_.ok() ? absl::UnavailableError(absl::StrCat(
                                controller_, ": ended without an answer"))
                          : result_;
    }
    return absl::DeadlineExceededError(
        absl::StrCat(controller_, ": no answer"));
  }

  absl::Status OnMessage(v1::ControllerMessage message) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    if (message.kind_case() == v1::ControllerMessage::kFinish) {
      End(ToStatus(message.finish().code(), message.finish().message()));
      return absl::OkStatus();
    }
    MutexLock lock(&mu_);
    absl::Status status = HandleLocked(std::move(message));
    changed_.SignalAll();
    return status;
  }

  absl::Status HandleLocked(v1::ControllerMessage message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (message.kind_case() == v1::ControllerMessage::kWelcome) {
      if (welcomed_) return Unexpected("a second Welcome");
      welcome_ = std::move(*message.mutable_welcome());
      welcomed_ = true;
      return absl::OkStatus();
    }
    if (!welcomed_) return Unexpected("a message before Welcome");
    switch (message.kind_case()) {
      case v1::ControllerMessage::kStart:
        if (started_) return Unexpected("a second Start");
        if (message.start().entries_size() > 0 && entries_.empty()) {
          newest_seq_ =
              std::max<uint64_t>(message.start().entries(0).seq(), 1) - 1;
        }
        for (const v1::ScheduleEntry& entry : message.start().entries()) {
          RV_RETURN_IF_ERROR(AddEntryLocked(entry));
        }
        start_ = std::move(*message.mutable_start());
        started_ = true;
        return absl::OkStatus();
      case v1::ControllerMessage::kEntry:
        return AddEntryLocked(message.entry());
      default:
        // A kind that a newer controller may send and that this version can do
        // without.
        return absl::OkStatus();
    }
  }

  absl::Status AddEntryLocked(const v1::ScheduleEntry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t next = newest_seq_ + 1;
    if (entry.seq() < next && entry.seq() > 0)
      return absl::OkStatus();  // again
    if (entry.seq() != next) {
      return Unexpected(absl::StrCat("schedule entry ", entry.seq(), " where ",
                                     next, " follows"));
    }
    entries_[next] = entry;
    newest_seq_ = next;
    return absl::OkStatus();
  }

  absl::Status Unexpected(const std::string& what) const {
    return absl::InternalError(absl::StrCat(controller_, " sent ", what));
  }

  void OnEnd(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool before_welcome;
    {
      MutexLock lock(&mu_);
      before_welcome = !welcomed_;
    }
    // Until the welcome the code says whether another try makes sense. After it
    // a stream that ends without Finish is a lost controller, unless the
    // controller itself said why.
    const bool broken = status.ok() || absl::IsCancelled(status) ||
                        absl::IsUnavailable(status) || absl::IsUnknown(status);
    if (before_welcome || !broken) {
      End(status);
    } else {
      End(absl::UnavailableError(absl::StrCat(
          "lost ", controller_,
          status.ok() ? "" : absl::StrCat(": ", status.message()))));
    }
  }

  // The first reason counts.
  void End(const absl::Status& result) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::function<void(const absl::Status&)>> callbacks;
    {
      MutexLock lock(&mu_);
      if (ended_) return;
      ended_ = true;
      result_ = result;
      callbacks.swap(on_end_);
      changed_.SignalAll();
    }
    for (const auto& callback : callbacks) callback(result);
  }

  void Beat() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::Time next = absl::Now() + heartbeat_every_;
    while (true) {
      v1::DaemonMessage message;
      {
        MutexLock lock(&mu_);
        while (!closing_ && !ended_) {
          const absl::Duration left = next - absl::Now();
          if (left <= absl::ZeroDuration()) break;
          changed_.WaitWithTimeout(&mu_, left);
        }
        if (closing_ || ended_) return;
        message.mutable_heartbeat()->set_step(step_);
      }
      // Ahead of weights that wait for a slow link: the lease must not lapse.
      stream_->WriteFirst(std::move(message));
      next = absl::Now() + heartbeat_every_;
    }
  }

  const std::string controller_;
  const absl::Duration heartbeat_every_;
  std::unique_ptr<v1::Controller::Stub> stub_;  // constant; null without gRPC

  Mutex mu_;
  CondVar changed_;
  v1::Welcome welcome_ ABSL_GUARDED_BY(mu_);
  v1::Start start_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, v1::ScheduleEntry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t newest_seq_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::function<void(const absl::Status&)>> on_end_
      ABSL_GUARDED_BY(mu_);
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;

  Mutex close_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // one Close at a time
  std::thread heartbeat_;  // started by Dial, joined by Close

  // Last: its destructor calls back into the members above.
  std::unique_ptr<MessageStream<v1::DaemonMessage, v1::ControllerMessage>>
      stream_;
  GrpcStream* grpc_ = nullptr;  // the same, where it is gRPC's
};

SessionClient::SessionClient(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
SessionClient::~SessionClient() { Close(); }

absl::StatusOr<std::unique_ptr<SessionClient>> SessionClient::Join(
    Options options) {
  std::unique_ptr<Impl> impl;
  RV_RETURN_IF_ERROR(
      RetryDial({.peer = absl::StrCat("the controller at ", options.controller),
                 .timeout = options.join_timeout,
                 .cancelled = options.cancelled},
                [&](absl::Time deadline) {
                  // A channel of its own for each try: one that has failed sits
                  // in gRPC's own, much longer back-off.
                  impl.reset();
                  impl = std::make_unique<Impl>(options);
                  return impl->Dial(options.hello, deadline, options.cancelled);
                }));
  return std::unique_ptr<SessionClient>(new SessionClient(std::move(impl)));
}

const v1::Welcome& SessionClient::welcome() const { return impl_->welcome(); }

absl::StatusOr<v1::Start> SessionClient::WaitForStart() {
  return impl_->WaitForStart();
}

uint64_t SessionClient::newest_seq() const { return impl_->newest_seq(); }

absl::StatusOr<v1::ScheduleEntry> SessionClient::WaitForEntry(
    uint64_t seq, absl::Duration timeout) {
  return impl_->WaitForEntry(seq, timeout);
}

void SessionClient::Send(v1::DaemonMessage message) {
  impl_->Send(std::move(message));
}

void SessionClient::SetStep(uint64_t step) { impl_->SetStep(step); }

absl::Status SessionClient::WaitForFinish() { return impl_->WaitForFinish(); }

bool SessionClient::Ended(absl::Status* result) const {
  return impl_->Ended(result);
}

void SessionClient::OnEnd(std::function<void(const absl::Status&)> callback) {
  impl_->OnEndCall(std::move(callback));
}

void SessionClient::Close() { impl_->Close(); }

const ByteCounter& SessionClient::sent() const { return impl_->sent(); }
const ByteCounter& SessionClient::received() const { return impl_->received(); }

}  // namespace rivulet
