#include "server/controller/membership.h"

#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/daemon/digest.h"
#include "common/daemon/grpc_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr char kConfig[] = "train.epochs=3\ntrain.seed=1";
const MemberKey kWorker0{v1::ROLE_WORKER, 0};
const MemberKey kWorker1{v1::ROLE_WORKER, 1};
const MemberKey kShard0{v1::ROLE_SHARD, 0};

MembershipOptions Options() {
  return {.workers = 2,
          .shards = 1,
          .job = "job",
          .config = kConfig,
          .manifest_hash = "model",
          .generation = 3,
          .lease = absl::Seconds(30)};
}

v1::Hello Hello(const MemberKey& key) {
  v1::Hello hello;
  hello.set_protocol_min(kOldestProtocolVersion);
  hello.set_protocol_max(kProtocolVersion);
  hello.set_role(key.role);
  hello.set_index(static_cast<uint32_t>(key.index));
  hello.set_config_hash(Sha256Hex(kConfig));
  hello.set_manifest_hash("model");
  if (key.role == v1::ROLE_SHARD) hello.set_address("10.0.0.1:7");
  return hello;
}

TEST(MembershipTest, NamesWhoIsMissingAndHowToStartThem) {
  Membership members(Options());
  EXPECT_EQ(members.Missing(),
            "0 of 2 workers, 0 of 1 shards: waiting for worker 0, worker 1, "
            "shard 0; start with: rivulet-worker --config FILE --rank 0; "
            "rivulet-worker --config FILE --rank 1; "
            "rivulet-server --config FILE --shard 0");
  RV_ASSERT_OK(members.Join(1, Hello(kWorker0), kStart));
  RV_ASSERT_OK(members.Join(2, Hello(kShard0), kStart));
  EXPECT_FALSE(members.Complete());
  EXPECT_EQ(members.Missing(),
            "1 of 2 workers, 1 of 1 shards: waiting for worker 1; start with: "
            "rivulet-worker --config FILE --rank 1");
  RV_ASSERT_OK(members.Join(3, Hello(kWorker1), kStart));
  EXPECT_TRUE(members.Complete());
  EXPECT_EQ(members.Missing(), "2 of 2 workers, 1 of 1 shards");
}

TEST(MembershipTest, GivesGrowingIncarnationsAlsoAcrossItsOwnRestarts) {
  Membership members(Options());
  RV_ASSERT_OK_AND_ASSIGN(auto first, members.Join(1, Hello(kWorker0), kStart));
  EXPECT_FALSE(first.superseded.has_value());
  RV_ASSERT_OK_AND_ASSIGN(auto again, members.Join(2, Hello(kWorker0), kStart));
  EXPECT_GT(again.incarnation, first.incarnation);
  EXPECT_EQ(again.superseded, 1u);
  EXPECT_EQ(members.Find(1), std::nullopt);
  EXPECT_EQ(members.Find(2), kWorker0);
  EXPECT_EQ(members.Leave(1), std::nullopt) << "the old stream is nobody's";

  MembershipOptions options = Options();
  options.generation = 4;
  Membership restarted(options);
  RV_ASSERT_OK_AND_ASSIGN(auto later,
                          restarted.Join(1, Hello(kWorker0), kStart));
  EXPECT_GT(later.incarnation, again.incarnation);
}

TEST(MembershipTest, RefusesWhatDoesNotBelongHereAndNamesBothSides) {
  Membership members(Options());
  v1::Hello hello = Hello(kWorker0);
  hello.set_job("another job");
  EXPECT_THAT(members.Join(1, hello, kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the controller has job"),
                             HasSubstr("worker 0 another job"))));
  hello = Hello(kWorker0);
  hello.set_config_hash("x");
  EXPECT_THAT(members.Join(1, hello, kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("another config")));
  hello = Hello(kWorker0);
  hello.set_manifest_hash("x");
  EXPECT_THAT(
      members.Join(1, hello, kStart).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another model")));
  hello = Hello(kWorker0);
  hello.set_protocol_min(kProtocolVersion + 1);
  hello.set_protocol_max(kProtocolVersion + 2);
  EXPECT_THAT(members.Join(1, hello, kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no common protocol version")));
  EXPECT_THAT(members.Join(1, Hello({v1::ROLE_WORKER, 2}), kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cluster.workers is 2, so 0 to 1")));
  EXPECT_THAT(members.Join(1, Hello({v1::ROLE_SHARD, 1}), kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cluster.shards is 1")));
  hello = Hello(kWorker0);
  hello.set_role(v1::ROLE_UNSPECIFIED);
  EXPECT_THAT(members.Join(1, hello, kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  hello = Hello(kShard0);
  hello.clear_address();
  EXPECT_THAT(members.Join(1, hello, kStart).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dial")));
  EXPECT_EQ(members.Find(1), std::nullopt);
}

TEST(MembershipTest, ANewerPeerThatAlsoSpeaksThisVersionIsWelcome) {
  Membership members(Options());
  v1::Hello hello = Hello(kWorker0);
  hello.set_protocol_max(kProtocolVersion + 1);
  RV_ASSERT_OK_AND_ASSIGN(auto joined, members.Join(1, hello, kStart));
  EXPECT_EQ(joined.protocol, kProtocolVersion);
}

TEST(MembershipTest, TakesNobodyOnceSealed) {
  Membership members(Options());
  members.Seal();
  EXPECT_THAT(
      members.Join(1, Hello(kWorker0), kStart).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--resume")));
}

TEST(MembershipTest, LeasesLapseUnlessHeardOrFinished) {
  Membership members(Options());
  RV_ASSERT_OK(members.Join(1, Hello(kWorker0), kStart));
  RV_ASSERT_OK(members.Join(2, Hello(kWorker1), kStart));
  RV_ASSERT_OK(members.Join(3, Hello(kShard0), kStart));
  EXPECT_THAT(members.Silent(kStart + absl::Seconds(30)), ElementsAre());
  members.Heard(1, kStart + absl::Seconds(20));
  members.SetFinished(kShard0);
  EXPECT_THAT(members.Silent(kStart + absl::Seconds(31)),
              ElementsAre(kWorker1));
}

TEST(MembershipTest, FindsTheNewestCheckpointThatEverybodyHolds) {
  const auto common = [](std::vector<int> a, std::vector<int> b,
                         std::vector<int> s, bool b_resumes = true) {
    Membership members(Options());
    const auto join = [&](StreamId stream, const MemberKey& key,
                          const std::vector<int>& steps, bool resume) {
      v1::Hello hello = Hello(key);
      hello.set_resume(resume);
      for (int step : steps) hello.add_checkpoints(static_cast<uint64_t>(step));
      RV_CHECK(members.Join(stream, hello, kStart).ok());
    };
    join(1, kWorker0, a, true);
    join(2, kWorker1, b, b_resumes);
    join(3, kShard0, s, true);
    return members.CommonCheckpoint();
  };
  EXPECT_THAT(common({30, 20, 10}, {10, 20}, {40, 20, 10}), IsOkAndHolds(20));
  EXPECT_THAT(common({}, {}, {}), IsOkAndHolds(0));
  // To begin at step 0 would give up what some have.
  EXPECT_THAT(common({30}, {20}, {30}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr(": worker 0 has 30; worker 1 has 20; shard 0 "
                                 "has 30; ")));
  EXPECT_THAT(
      common({}, {}, {10, 20, 30, 40, 50}),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("worker 0 has none; worker 1 has none; shard 0 has "
                         "..., 20, 30, 40, 50; start")));
  EXPECT_THAT(common({30}, {30}, {30}, /*b_resumes=*/false),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr(": worker 1 has none; worker 0 has 30")));
}

TEST(MembershipTest, NamesOnlyAFewOfManyWithoutACommonCheckpoint) {
  MembershipOptions options = Options();
  options.workers = 20;
  Membership members(options);
  for (int rank = 0; rank < 20; ++rank) {
    v1::Hello hello = Hello({v1::ROLE_WORKER, rank});
    hello.set_resume(true);
    if (rank != 7) hello.add_checkpoints(30);
    RV_ASSERT_OK(members.Join(static_cast<StreamId>(rank + 1), hello, kStart));
  }
  EXPECT_THAT(members.CommonCheckpoint(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("everybody: worker 7 has none; worker 0 has "
                                 "30; worker 1 has 30; worker 2 has 30; worker "
                                 "3 has 30; worker 4 has 30; worker 5 has 30; "
                                 "worker 6 has 30 and 12 more; start")));
}

TEST(MembershipTest, CountsTheWorkersOfAMachine) {
  MembershipOptions options = Options();
  options.workers = 3;
  Membership members(options);
  StreamId stream = 0;
  const auto join = [&](const MemberKey& key, const char* machine) {
    v1::Hello hello = Hello(key);
    hello.set_host("all-have-the-same-name");
    hello.set_machine(machine);
    RV_ASSERT_OK(members.Join(++stream, hello, kStart));
  };
  join(kWorker0, "a");
  join(kWorker1, "b");
  join({v1::ROLE_WORKER, 2}, "a");
  join(kShard0, "b");
  EXPECT_EQ(members.WorkersBeside(kWorker0), 2);
  EXPECT_EQ(members.WorkersBeside(kWorker1), 1);
  EXPECT_EQ(members.WorkersBeside(kShard0), 1);
  join(kWorker0, "");
  EXPECT_EQ(members.WorkersBeside(kWorker0), 0) << "not known";
}

TEST(MembershipTest, ListsViewAndAddressesInOrder) {
  MembershipOptions options = Options();
  options.shards = 2;
  Membership members(options);
  v1::Hello second = Hello({v1::ROLE_SHARD, 1});
  second.set_address("b:1");
  RV_ASSERT_OK(members.Join(1, second, kStart));
  RV_ASSERT_OK(members.Join(2, Hello(kWorker1), kStart));
  RV_ASSERT_OK(members.Join(3, Hello(kWorker0), kStart));
  RV_ASSERT_OK(members.Join(4, Hello(kShard0), kStart));
  EXPECT_THAT(members.ShardAddresses(), ElementsAre("10.0.0.1:7", "b:1"));
  const v1::View view = members.CurrentView();
  ASSERT_EQ(view.members_size(), 2);
  EXPECT_EQ(view.members(0).rank(), 0u);
  EXPECT_GT(view.members(0).incarnation(), view.members(1).incarnation());
  EXPECT_FALSE(members.AllFinished());
  for (const MemberKey& key :
       {kWorker0, kWorker1, kShard0, MemberKey{v1::ROLE_SHARD, 1}}) {
    members.SetFinished(key);
  }
  EXPECT_TRUE(members.AllFinished());
}

}  // namespace
}  // namespace rivulet
