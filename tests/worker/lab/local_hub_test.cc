#include "worker/lab/local_hub.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/daemon/grpc_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/exchange.pb.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Hub = LocalHub<v1::WorkerMessage, v1::ShardMessage>;
using Stream = MessageStream<v1::WorkerMessage, v1::ShardMessage>;

v1::WorkerMessage Boundary(uint64_t step) {
  v1::WorkerMessage message;
  message.mutable_boundary()->set_step(step);
  return message;
}

std::shared_ptr<const v1::ShardMessage> Update(uint64_t step,
                                               const std::string& data = "") {
  auto message = std::make_shared<v1::ShardMessage>();
  message->mutable_update()->set_step(step);
  message->mutable_update()->set_data(data);
  return message;
}

// What a client has heard.
class Ear : public Stream::Listener {
 public:
  absl::Status OnMessage(v1::ShardMessage message) override {
    EXPECT_TRUE(ends.empty()) << "a message after the end";
    steps.push_back(message.update().step());
    return refuses;
  }
  int64_t PayloadBytes(const v1::ShardMessage& message) const override {
    return static_cast<int64_t>(message.update().data().size());
  }
  void OnEnd(const absl::Status& status) override { ends.push_back(status); }

  absl::Status refuses;
  std::vector<uint64_t> steps;
  std::vector<absl::Status> ends;
};

// A hub that answers each message with two, and remembers who left.
class LocalHubTest : public ::testing::Test {
 protected:
  void Open() {
    hub_.Open([this](Hub::Event event) {
      if (!event.message.has_value()) {
        left_.push_back(answers_.Peer(event.stream));
        answers_.End(event.stream, absl::OkStatus());
        return;
      }
      const uint64_t step = event.message->boundary().step();
      answers_.Send(event.stream, Update(step, "abc"));
      answers_.Send(event.stream, Update(step + 1));
    });
  }
  std::unique_ptr<Stream> Connect(const std::string& name, Ear* ear) {
    std::unique_ptr<Stream> stream = hub_.Connect(name, ear);
    stream->Start();
    return stream;
  }

  std::vector<std::string> left_;
  Hub hub_{"shard 7"};
  // As what is behind a hub sees it.
  MessageHub<v1::WorkerMessage, v1::ShardMessage>& answers_ = hub_;
};

TEST_F(LocalHubTest, AnswersAreThereWhenTheWriteReturns) {
  Open();
  Ear a;
  Ear b;
  const auto stream_a = Connect("a", &a);
  const auto stream_b = Connect("b", &b);
  stream_a->Write(Boundary(3), 0);
  stream_b->WriteFirst(Boundary(8));
  EXPECT_THAT(a.steps, ElementsAre(3, 4));
  EXPECT_THAT(b.steps, ElementsAre(8, 9));
}

TEST_F(LocalHubTest, CountsAsTheWireDoes) {
  Open();
  Ear ear;
  const auto stream = Connect("a", &ear);
  stream->Write(Boundary(3), 5);
  EXPECT_EQ(stream->sent().wire(),
            WireBytes(static_cast<int64_t>(Boundary(3).ByteSizeLong())));
  EXPECT_EQ(stream->sent().payload(), 5);
  EXPECT_EQ(stream->received().wire(),
            WireBytes(static_cast<int64_t>(Update(3, "abc")->ByteSizeLong())) +
                WireBytes(static_cast<int64_t>(Update(4)->ByteSizeLong())));
  EXPECT_EQ(stream->received().payload(), 3);
}

TEST_F(LocalHubTest, WhatIsSentBeforeItOpensWaits) {
  Ear ear;
  const auto stream = Connect("a", &ear);
  std::thread writer([&] { stream->Write(Boundary(1), 0); });
  Open();
  writer.join();
  EXPECT_THAT(ear.steps, ElementsAre(1, 2));
}

TEST_F(LocalHubTest, ClosingIsSeenAndEndsInOrder) {
  Open();
  Ear ear;
  const auto stream = Connect("a", &ear);
  stream->Close(absl::ZeroDuration());
  stream->Close(absl::ZeroDuration());
  EXPECT_THAT(left_, ElementsAre("a"));
  ASSERT_EQ(ear.ends.size(), 1u);
  RV_EXPECT_OK(ear.ends[0]);
  stream->Write(Boundary(1), 0);
  EXPECT_TRUE(ear.steps.empty());
  EXPECT_EQ(stream->sent().wire(), 0);
}

TEST_F(LocalHubTest, AnEndByTheOwnerNamesItAndIsTheLastEvent) {
  Open();
  Ear ear;
  auto stream = Connect("a", &ear);
  hub_.InTurn([&] { answers_.End(1, absl::DataLossError("a bad frame")); });
  ASSERT_EQ(ear.ends.size(), 1u);
  EXPECT_THAT(ear.ends[0],
              StatusIs(absl::StatusCode::kDataLoss, "shard 7: a bad frame"));
  stream->Write(Boundary(1), 0);
  stream.reset();
  EXPECT_TRUE(ear.steps.empty());
  EXPECT_TRUE(left_.empty());
  EXPECT_EQ(ear.ends.size(), 1u);
}

TEST_F(LocalHubTest, ACancelledStreamHearsNothingMore) {
  Open();
  Ear ear;
  auto stream = Connect("a", &ear);
  stream->Cancel(absl::AbortedError("enough"));
  hub_.InTurn([&] { answers_.Send(1, Update(1)); });
  EXPECT_TRUE(ear.steps.empty());
  ASSERT_EQ(ear.ends.size(), 1u);
  EXPECT_THAT(ear.ends[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
  stream.reset();
  EXPECT_THAT(left_, ElementsAre("a"));
  EXPECT_EQ(ear.ends.size(), 1u);
}

TEST_F(LocalHubTest, AListenerThatRefusesAMessageIsDone) {
  Open();
  Ear ear;
  ear.refuses = absl::InternalError("not this");
  const auto stream = Connect("a", &ear);
  stream->Write(Boundary(1), 0);
  EXPECT_THAT(ear.steps, ElementsAre(1));
  ASSERT_EQ(ear.ends.size(), 1u);
  EXPECT_THAT(ear.ends[0],
              StatusIs(absl::StatusCode::kInternal, HasSubstr("not this")));
}

TEST_F(LocalHubTest, ShutEndsAllThereIsAndWillBe) {
  Ear before;
  Ear after;
  const auto first = Connect("a", &before);
  // Waits for the hub to open, which it never does.
  std::thread writer([&] { first->Write(Boundary(1), 0); });
  hub_.Shut(absl::UnavailableError("gone"));
  writer.join();
  const auto second = Connect("b", &after);
  for (const Ear* ear : {&before, &after}) {
    EXPECT_TRUE(ear->steps.empty());
    ASSERT_EQ(ear->ends.size(), 1u);
    EXPECT_THAT(ear->ends[0],
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
  }
}

TEST_F(LocalHubTest, EventsOfManyThreadsAreHandledOneAtATime) {
  int64_t handled = 0;  // not atomic: the turn guards it
  hub_.Open([&](Hub::Event event) {
    if (event.message.has_value()) {
      ++handled;
      answers_.Send(event.stream, Update(event.message->boundary().step()));
    } else {
      answers_.End(event.stream, absl::OkStatus());
    }
  });
  constexpr int kThreads = 4;
  constexpr int kMessages = 500;
  std::vector<Ear> ears(kThreads);
  std::vector<std::thread> threads;
  for (Ear& ear : ears) {
    threads.emplace_back([&] {
      const auto stream = Connect("a", &ear);
      for (int i = 0; i < kMessages; ++i) stream->Write(Boundary(1), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(handled, kThreads * kMessages);
  for (const Ear& ear : ears) EXPECT_EQ(ear.steps.size(), kMessages);
}

}  // namespace
}  // namespace rivulet
