// The shard's side of Shard.Exchange: turns the workers' messages into pushes,
// makes and sends the updates, acts on the schedule at step boundaries, and
// hands the final weights to the controller (proto/README.md).
//
// One thread owns it and gives it one event at a time. Nothing here knows gRPC
// but through the hub, and the controller's session is behind an interface.

#ifndef RIVULET_SERVER_EXCHANGE_LOOP_H_
#define RIVULET_SERVER_EXCHANGE_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/controller.pb.h"
#include "proto/exchange.pb.h"
#include "server/push_assembler.h"
#include "server/shard_core.h"
#include "server/statistics_averager.h"
#include "server/stream_hub.h"

namespace rivulet {

using ExchangeHub = StreamHub<v1::WorkerMessage, v1::ShardMessage>;
using ExchangeStreams = MessageHub<v1::WorkerMessage, v1::ShardMessage>;

// What the loop needs of the session with the controller.
class ShardControl {
 public:
  virtual ~ShardControl() = default;
  virtual uint64_t NewestSeq() const = 0;
  // May block until the entry has come; DeadlineExceeded when it does not.
  virtual absl::StatusOr<v1::ScheduleEntry> WaitForEntry(uint64_t seq) = 0;
  virtual void Send(v1::DaemonMessage message) = 0;
  virtual void SetStep(uint64_t step) = 0;
};

struct ExchangeOptions {
  std::string job;          // from Welcome
  std::string config_hash;  // as the worker must have it
  std::string manifest_hash;
  uint64_t schedule_seq = 0;  // newest entry of Start
  // Keeps `state`, made before step `step`.
  std::function<absl::Status(int64_t step, TensorFile state)> save;
};

class ExchangeLoop {
 public:
  // Borrows all three for its life.
  ExchangeLoop(ShardCore* core, ExchangeStreams* hub, ShardControl* control,
               ExchangeOptions options);

  // Handles one event. A bad message, or a worker that leaves, ends only that
  // stream: whether the run goes on without the worker is the controller's to
  // decide. An error means that this shard cannot go on: it comes from the core
  // or from saving.
  absl::Status Handle(ExchangeStreams::Event event);

  // Says every 10 s whose pushes a step that has begun still waits for: a
  // worker may be stuck while its session lives. Call every 50 ms or so.
  void Tick(absl::Time now);

  // Finished is sent: after the last step, or at a stop.
  bool finished() const { return finished_; }

 private:
  struct Worker {  // a stream that said hello
    int rank = -1;
    uint64_t incarnation = 0;
    std::unique_ptr<PushAssembler> assembler;
  };

  void HandleLeft(StreamId stream, const std::string& reason);
  // The status of these four ends the stream; a shard's own failure is
  // `fatal_`.
  absl::Status HandleMessage(StreamId stream, v1::WorkerMessage message);
  absl::Status HandleHello(StreamId stream, const v1::ExchangeHello& hello);
  absl::Status HandlePush(StreamId stream, const Worker& worker,
                          WholePush push);
  absl::Status HandleStatistics(const Worker& worker,
                                const WholeStatistics& whole);

  // Whether a worker may be the one to tell of entries up to `seq`: of the
  // boundary that this shard is at, and not to shard 0, which tells them.
  absl::Status CheckMayAdvance(uint64_t seq) const;
  // Entries up to `seq` hold from step version() on.
  absl::Status AdvanceSchedule(uint64_t seq);
  absl::Status ActAtBoundary(bool checkpoint, bool stop);
  absl::Status MakeAndSendUpdate();
  absl::Status SendWeights();
  void SendBuffers(absl::Span<const float> values);
  void SendFinished(bool complete);

  ShardCore* const core_;
  ExchangeStreams* const hub_;
  ShardControl* const control_;
  const ExchangeOptions options_;
  const int64_t buffer_elements_;
  StatisticsAverager statistics_;
  std::map<StreamId, Worker> workers_;
  std::map<int, StreamId> by_rank_;  // the current stream of each rank
  uint64_t schedule_seq_;
  bool finished_ = false;
  absl::Status fatal_;

  // Of the step that waits for pushes; -1: none does.
  int64_t waiting_step_ = -1;
  absl::Time waiting_since_;
  absl::Time say_at_;
};

// The messages of an update or of statistics: pieces of at most kChunkBytes.
std::vector<std::shared_ptr<const v1::ShardMessage>> UpdateMessages(
    const ShardUpdate& update);
std::vector<std::shared_ptr<const v1::ShardMessage>> StatisticsMessages(
    int64_t step, absl::Span<const float> values);

}  // namespace rivulet

#endif  // RIVULET_SERVER_EXCHANGE_LOOP_H_
