// When checkpoints are due, and which sets are complete. Decisions only.
// Thread-compatible.

#ifndef RIVULET_SERVER_CONTROLLER_CHECKPOINT_TRACKER_H_
#define RIVULET_SERVER_CONTROLLER_CHECKPOINT_TRACKER_H_

#include <cstdint>
#include <map>
#include <set>

#include "absl/time/time.h"
#include "common/daemon/config.h"
#include "server/controller/membership.h"

namespace rivulet {

class CheckpointTracker {
 public:
  // `members` reports make a set. Time counts from `start`, steps from
  // `first_step`.
  CheckpointTracker(const CheckpointConfig& config, int members,
                    absl::Time start, int64_t first_step);

  // Whether a mark is due, with `step` steps done. Never while one is
  // outstanding.
  bool Due(absl::Time now, int64_t step) const;
  // A mark was appended to the schedule.
  void Marked(absl::Time now, int64_t step);

  // A member has saved its state as checkpoint `step`. True when that makes the
  // set complete; older sets that never became so are forgotten, and of those
  // under way all but the newest few.
  bool Saved(const MemberKey& member, int64_t step);

  // Newest complete set; 0 before the first.
  int64_t newest() const { return newest_; }

 private:
  const absl::Duration every_;
  const int64_t every_steps_;
  const int members_;
  bool outstanding_ = false;
  absl::Time last_time_;
  int64_t last_step_;
  int64_t newest_ = 0;
  std::map<int64_t, std::set<MemberKey>> saved_;  // by step
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_CHECKPOINT_TRACKER_H_
