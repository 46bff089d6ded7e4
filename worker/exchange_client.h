// A worker's stream to one shard: Shard.Exchange.
//
//   auto client = *ExchangeClient::Connect(options);
//   client->SendPush(step, frames);
//   client->SendCommit(step, last_frames, commit);
//   ReceivedUpdate update = *client->WaitForUpdate(step);
//
// Messages carry kChunkBytes of data at most, whatever the size of a tensor.
// Thread-safe after Connect.

#ifndef RIVULET_WORKER_EXCHANGE_CLIENT_H_
#define RIVULET_WORKER_EXCHANGE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/daemon/message_stream.h"
#include "worker/core_gate.h"
#include "worker/shard_stream.h"

namespace rivulet {

class ExchangeClient final : public ShardStream {
 public:
  struct Options {
    int shard = 0;
    std::string address;  // host:port
    // How to reach it; null: by gRPC.
    Connector<v1::WorkerMessage, v1::ShardMessage> connect;
    v1::ExchangeHello hello;
    absl::Duration connect_timeout = absl::Minutes(5);
    // A shard that does not answer for so long is given up.
    absl::Duration patience = kDefaultPatience;
    // Polled while dialling. May be null.
    std::function<bool()> cancelled;
    // Parameters that the shard owns: bounds what one update may hold.
    int64_t elements = 0;
    // Buffer elements of the model: the length of statistics.
    int64_t statistics = 0;
    // How often a wait says in the log for what it waits.
    absl::Duration say_every = absl::Seconds(10);
    // Let go of while waiting for the shard. Borrowed; may be null.
    CoreGate* gate = nullptr;
  };

  // Dials, tries again while nobody answers, and exchanges hellos.
  // DeadlineExceeded names shard, address and the last error; what the shard
  // refuses (wrong job, step, superseded incarnation) is final at once.
  // FailedPrecondition when another shard, or one at another step, answers.
  static absl::StatusOr<std::unique_ptr<ExchangeClient>> Connect(
      const Options& options);

  ~ExchangeClient() override;  // Close()

  // ShardStream:
  int shard() const override;
  void SendPush(int64_t step, std::string frames) override;
  void SendCommit(int64_t step, std::string frames,
                  const v1::Commit& commit) override;
  void SendBoundary(int64_t step, uint64_t schedule_seq) override;
  void SendStatistics(int64_t step, absl::Span<const float> values) override;
  absl::StatusOr<ReceivedUpdate> WaitForUpdate(int64_t step) override;
  absl::StatusOr<std::vector<float>> WaitForStatistics(int64_t step) override;
  void Cancel(const absl::Status& reason) override;
  const ByteCounter& sent() const override;
  const ByteCounter& received() const override;

  // Ends the stream from this side after what was sent is written (for at most
  // 5 s). Idempotent.
  void Close();

 private:
  class Impl;
  explicit ExchangeClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_EXCHANGE_CLIENT_H_
