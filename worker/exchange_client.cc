#include "worker/exchange_client.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/client_stream.h"
#include "common/daemon/dial.h"
#include "compression/frame.h"
#include "proto/exchange.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace rivulet {
namespace {

constexpr absl::Duration kCloseGrace = absl::Seconds(5);
constexpr absl::Duration kPoll = absl::Milliseconds(50);
// Complete updates, and statistics, that may lie here untaken. A shard makes
// the next one only after this worker has pushed again.
constexpr size_t kMaxUntaken = 2;

std::string NameOf(const ExchangeClient::Options& options) {
  return absl::StrCat("shard ", options.shard, " at ", options.address);
}

}  // namespace

class ExchangeClient::Impl final
    : private MessageStream<v1::WorkerMessage, v1::ShardMessage>::Listener {
 public:
  explicit Impl(const Options& options)
      : options_(options), name_(NameOf(options)) {
    if (options.connect != nullptr) {
      stream_ = options.connect(this);
      return;
    }
    stub_ = v1::Shard::NewStub(MakeChannel(options.address, options.patience));
    GrpcStream::Listener* const listener = this;
    auto stream = std::make_unique<GrpcStream>(
        name_,
        // A push and statistics are all that can ever wait.
        2 * MaxFrameBytes(options.elements) + 8 * options.statistics, listener);
    grpc_ = stream.get();
    stream_ = std::move(stream);
  }

  ~Impl() override { Close(); }

  int shard() const { return options_.shard; }
  const std::string& name() const { return name_; }

  // One try: says hello and waits for the welcome. After a failure only the
  // destructor may follow.
  absl::Status Dial(absl::Time deadline) {
    absl::Status status = SayHello(deadline);
    // So that the destructor need not wait for a peer that does not answer.
    if (!status.ok()) Cancel(status);
    return status;
  }

  void SendPush(int64_t step, const std::string& frames,
                const v1::Commit* commit) {
    for (size_t begin = 0; begin < frames.size() || commit != nullptr;
         begin += kChunkBytes) {
      v1::WorkerMessage message;
      v1::Push& push = *message.mutable_push();
      push.set_step(static_cast<uint64_t>(step));
      push.set_data(frames.substr(std::min(begin, frames.size()), kChunkBytes));
      const auto payload = static_cast<int64_t>(push.data().size());
      const bool last = begin + kChunkBytes >= frames.size();
      if (last && commit != nullptr) *push.mutable_commit() = *commit;
      stream_->Write(std::move(message), payload);
      if (last) return;
    }
  }

  void SendBoundary(int64_t step, uint64_t schedule_seq) {
    v1::WorkerMessage message;
    message.mutable_boundary()->set_step(static_cast<uint64_t>(step));
    message.mutable_boundary()->set_schedule_seq(schedule_seq);
    stream_->Write(std::move(message), 0);
  }

  void SendStatistics(int64_t step, absl::Span<const float> values) {
    const char* const bytes = reinterpret_cast<const char*>(values.data());
    const size_t size = values.size() * sizeof(float);
    for (size_t begin = 0; begin < size; begin += kChunkBytes) {
      const size_t n = std::min<size_t>(size - begin, kChunkBytes);
      v1::WorkerMessage message;
      v1::Statistics& part = *message.mutable_statistics();
      part.set_step(static_cast<uint64_t>(step));
      part.set_data(bytes + begin, n);
      part.set_last(begin + n == size);
      stream_->Write(std::move(message), 0);
    }
  }

  absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t step)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const CoreGate::Pause pause(options_.gate);
    MutexLock lock(&mu_);
    RV_RETURN_IF_ERROR(
        WaitLocked(&updates_, absl::StrCat("the update of step ", step)));
    ReceivedUpdate update = std::move(updates_.front());
    updates_.pop_front();
    if (update.step != step) {
      return absl::InternalError(absl::StrCat(
          name_, " sent its update of step ", update.step, " for ", step));
    }
    return update;
  }

  absl::StatusOr<std::vector<float>> WaitForStatistics(int64_t step)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const CoreGate::Pause pause(options_.gate);
    MutexLock lock(&mu_);
    RV_RETURN_IF_ERROR(WaitLocked(
        &statistics_, absl::StrCat("the mean statistics of step ", step)));
    StepStatistics result = std::move(statistics_.front());
    statistics_.pop_front();
    if (result.step != step) {
      return absl::InternalError(absl::StrCat(
          name_, " sent statistics of step ", result.step, " for ", step));
    }
    return std::move(result.values);
  }

  void Cancel(const absl::Status& reason) {
    End(reason);
    stream_->Cancel(reason);
  }

  void Close() { stream_->Close(kCloseGrace); }

  const ByteCounter& sent() const { return stream_->sent(); }
  const ByteCounter& received() const { return stream_->received(); }

 private:
  using GrpcStream = ClientStream<v1::WorkerMessage, v1::ShardMessage>;

  struct StepStatistics {
    int64_t step = 0;
    std::vector<float> values;
  };

  absl::Status SayHello(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    if (grpc_ != nullptr) {
      stub_->async()->Exchange(grpc_->context(), grpc_);
    }
    stream_->Start();
    v1::WorkerMessage message;
    *message.mutable_hello() = options_.hello;
    stream_->Write(std::move(message), 0);
    while (absl::Now() < deadline) {
      // Without the lock: it is the caller's code.
      if (options_.cancelled != nullptr && options_.cancelled()) {
        return absl::CancelledError(
            absl::StrCat("told to stop while dialling ", name_));
      }
      MutexLock lock(&mu_);
      if (!welcomed_ && !ended_) changed_.WaitWithTimeout(&mu_, kPoll);
      if (welcomed_) return CheckWelcome(welcome_);
      if (ended_) return result_;
    }
    return absl::DeadlineExceededError(absl::StrCat(name_, ": no answer"));
  }

  absl::Status CheckWelcome(const v1::ExchangeWelcome& welcome) const {
    const v1::ExchangeHello& hello = options_.hello;
    if (welcome.protocol() < hello.protocol_min() ||
        welcome.protocol() > hello.protocol_max()) {
      return absl::FailedPreconditionError(absl::StrCat(
          name_, " speaks protocol ", welcome.protocol(), ", this worker ",
          hello.protocol_min(), " to ", hello.protocol_max()));
    }
    if (static_cast<int>(welcome.shard()) != options_.shard) {
      return absl::FailedPreconditionError(
          absl::StrCat(name_, " says it is shard ", welcome.shard()));
    }
    if (welcome.version() != hello.next_step()) {
      return absl::FailedPreconditionError(
          absl::StrCat(name_, " collects step ", welcome.version(),
                       ", this worker begins at ", hello.next_step()));
    }
    return absl::OkStatus();
  }

  // Until `queue` has something or the stream has ended. What has arrived is
  // handed out even after the end.
  template <typename Queue>
  absl::Status WaitLocked(Queue* queue, const std::string& what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time start = absl::Now();
    absl::Time say_next = start + options_.say_every;
    while (queue->empty()) {
      if (ended_) return Annotate(result_, absl::StrCat("waiting for ", what));
      changed_.WaitWithTimeout(&mu_, say_next - absl::Now());
      if (queue->empty() && absl::Now() >= say_next) {
        say_next += options_.say_every;
        spdlog::warn("{} has not sent {} for {}", name_, what,
                     absl::FormatDuration(
                         absl::Trunc(absl::Now() - start, absl::Seconds(1))));
      }
    }
    return absl::OkStatus();
  }

  int64_t PayloadBytes(const v1::ShardMessage& message) const override {
    return static_cast<int64_t>(message.update().data().size());
  }

  absl::Status OnMessage(v1::ShardMessage message) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    absl::Status status = HandleLocked(&message);
    changed_.SignalAll();
    return status;
  }

  absl::Status HandleLocked(v1::ShardMessage* message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (message->has_welcome()) {
      if (welcomed_) return Unexpected("a second welcome");
      welcome_ = message->welcome();
      welcomed_ = true;
      return absl::OkStatus();
    }
    if (!welcomed_) return Unexpected("a message before its welcome");
    if (message->has_update()) return AddUpdateLocked(message->update());
    if (message->has_statistics()) {
      return AddStatisticsLocked(message->statistics());
    }
    // A kind that a newer shard may send and that this version can do without.
    return absl::OkStatus();
  }

  absl::Status AddUpdateLocked(const v1::Update& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto step = static_cast<int64_t>(piece.step());
    if (!partial_update_.has_value()) {
      partial_update_.emplace();
      partial_update_->step = step;
    }
    if (partial_update_->step != step) {
      return Unexpected(absl::StrCat("a piece of step ", step,
                                     " within its update of step ",
                                     partial_update_->step));
    }
    const auto size = static_cast<int64_t>(partial_update_->bytes.size() +
                                           piece.data().size());
    if (size > MaxFrameBytes(options_.elements)) {
      return Unexpected(absl::StrCat(size, " bytes as its update of step ",
                                     step, ", the limit is ",
                                     MaxFrameBytes(options_.elements)));
    }
    partial_update_->bytes += piece.data();
    if (!piece.has_end()) return absl::OkStatus();
    if (updates_.size() >= kMaxUntaken) {
      return Unexpected(absl::StrCat("an update of step ", step,
                                     " ahead of this worker's push"));
    }
    partial_update_->end = piece.end();
    updates_.push_back(*std::move(partial_update_));
    partial_update_.reset();
    return absl::OkStatus();
  }

  absl::Status AddStatisticsLocked(const v1::Statistics& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const size_t expected =
        static_cast<size_t>(options_.statistics) * sizeof(float);
    partial_statistics_ += piece.data();
    const size_t size = partial_statistics_.size();
    if (size > expected || (piece.last() && size != expected)) {
      return Unexpected(absl::StrCat(size, " bytes of statistics of step ",
                                     piece.step(), ", ", expected,
                                     " are right"));
    }
    if (!piece.last()) return absl::OkStatus();
    if (statistics_.size() >= kMaxUntaken) {
      return Unexpected("statistics that nobody asked for");
    }
    StepStatistics whole;
    whole.step = static_cast<int64_t>(piece.step());
    whole.values.resize(static_cast<size_t>(options_.statistics));
    std::memcpy(whole.values.data(), partial_statistics_.data(), size);
    partial_statistics_.clear();
    statistics_.push_back(std::move(whole));
    return absl::OkStatus();
  }

  absl::Status Unexpected(const std::string& what) const {
    return absl::InternalError(absl::StrCat(name_, " sent ", what));
  }

  void OnEnd(const absl::Status& status) override {
    End(status.ok()
            ? absl::UnavailableError(absl::StrCat(name_, " ended the stream"))
            : status);
  }

  // The first reason counts.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (ended_) return;
    ended_ = true;
    result_ = reason;
    changed_.SignalAll();
  }

  const Options options_;
  const std::string name_;
  std::unique_ptr<v1::Shard::Stub> stub_;  // constant; null without gRPC

  Mutex mu_;
  CondVar changed_;
  v1::ExchangeWelcome welcome_ ABSL_GUARDED_BY(mu_);
  std::optional<ReceivedUpdate> partial_update_ ABSL_GUARDED_BY(mu_);
  std::deque<ReceivedUpdate> updates_ ABSL_GUARDED_BY(mu_);
  std::string partial_statistics_ ABSL_GUARDED_BY(mu_);
  std::deque<StepStatistics> statistics_ ABSL_GUARDED_BY(mu_);
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;

  // Last: its destructor calls back into the members above.
  std::unique_ptr<MessageStream<v1::WorkerMessage, v1::ShardMessage>> stream_;
  GrpcStream* grpc_ = nullptr;  // the same, where it is gRPC's
};

ExchangeClient::ExchangeClient(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ExchangeClient::~ExchangeClient() = default;

absl::StatusOr<std::unique_ptr<ExchangeClient>> ExchangeClient::Connect(
    const Options& options) {
  std::unique_ptr<Impl> impl;
  RV_RETURN_IF_ERROR(RetryDial({.peer = NameOf(options),
                                .timeout = options.connect_timeout,
                                .cancelled = options.cancelled},
                               [&](absl::Time deadline) {
                                 // A channel of its own for each try: one that
                                 // has failed sits in gRPC's own, much longer
                                 // back-off.
                                 impl.reset();
                                 impl = std::make_unique<Impl>(options);
                                 return impl->Dial(deadline);
                               }));
  return std::unique_ptr<ExchangeClient>(new ExchangeClient(std::move(impl)));
}

int ExchangeClient::shard() const { return impl_->shard(); }
void ExchangeClient::SendPush(int64_t step, std::string frames) {
  impl_->SendPush(step, frames, nullptr);
}
void ExchangeClient::SendCommit(int64_t step, std::string frames,
                                const v1::Commit& commit) {
  impl_->SendPush(step, frames, &commit);
}
void ExchangeClient::SendBoundary(int64_t step, uint64_t schedule_seq) {
  impl_->SendBoundary(step, schedule_seq);
}
void ExchangeClient::SendStatistics(int64_t step,
                                    absl::Span<const float> values) {
  impl_->SendStatistics(step, values);
}
absl::StatusOr<ReceivedUpdate> ExchangeClient::WaitForUpdate(int64_t step) {
  return impl_->WaitForUpdate(step);
}
absl::StatusOr<std::vector<float>> ExchangeClient::WaitForStatistics(
    int64_t step) {
  return impl_->WaitForStatistics(step);
}
void ExchangeClient::Cancel(const absl::Status& reason) {
  impl_->Cancel(reason);
}
const ByteCounter& ExchangeClient::sent() const { return impl_->sent(); }
const ByteCounter& ExchangeClient::received() const {
  return impl_->received();
}
void ExchangeClient::Close() { impl_->Close(); }

}  // namespace rivulet
