#include "server/controller/checkpoint_tracker.h"

#include "gtest/gtest.h"

namespace rivulet {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
const MemberKey kA{v1::ROLE_WORKER, 0};
const MemberKey kB{v1::ROLE_SHARD, 0};

TEST(CheckpointTrackerTest, IsDueByTimeOrBySteps) {
  CheckpointTracker by_time({.every = absl::Seconds(10), .every_steps = 0}, 2,
                            kStart, 0);
  EXPECT_FALSE(by_time.Due(kStart + absl::Seconds(9), 1000000));
  EXPECT_TRUE(by_time.Due(kStart + absl::Seconds(10), 0));
  CheckpointTracker by_steps({.every = absl::ZeroDuration(), .every_steps = 5},
                             2, kStart, 100);
  EXPECT_FALSE(by_steps.Due(kStart + absl::Hours(9), 104));
  EXPECT_TRUE(by_steps.Due(kStart, 105));
  CheckpointTracker never({.every = absl::ZeroDuration(), .every_steps = 0}, 2,
                          kStart, 0);
  EXPECT_FALSE(never.Due(kStart + absl::Hours(9), 1000000));
}

TEST(CheckpointTrackerTest, NeverHasTwoOutstanding) {
  CheckpointTracker tracker({.every = absl::Seconds(10), .every_steps = 5}, 2,
                            kStart, 0);
  tracker.Marked(kStart, 5);
  EXPECT_FALSE(tracker.Due(kStart + absl::Hours(1), 1000));
  EXPECT_FALSE(tracker.Saved(kA, 7));
  EXPECT_FALSE(tracker.Due(kStart + absl::Hours(1), 1000));
  EXPECT_TRUE(tracker.Saved(kB, 7));
  EXPECT_EQ(tracker.newest(), 7);
  EXPECT_TRUE(tracker.Due(kStart + absl::Hours(1), 1000));
  EXPECT_FALSE(tracker.Due(kStart + absl::Seconds(1), 9));
}

TEST(CheckpointTrackerTest, CountsEachMemberOnceAndSetsApart) {
  CheckpointTracker tracker({}, 2, kStart, 0);
  EXPECT_FALSE(tracker.Saved(kA, 7));
  EXPECT_FALSE(tracker.Saved(kA, 7));
  EXPECT_FALSE(tracker.Saved(kA, 9));
  EXPECT_TRUE(tracker.Saved(kB, 9));
  EXPECT_FALSE(tracker.Saved(kB, 7)) << "older than a complete set";
  EXPECT_EQ(tracker.newest(), 9);
}

}  // namespace
}  // namespace rivulet
