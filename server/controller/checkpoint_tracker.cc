#include "server/controller/checkpoint_tracker.h"

namespace rivulet {
namespace {

// Members are at most one mark apart: more sets under way are not honest.
constexpr size_t kMaxUnderWay = 8;

}  // namespace

CheckpointTracker::CheckpointTracker(const CheckpointConfig& config,
                                     int members, absl::Time start,
                                     int64_t first_step)
    : every_(config.every),
      every_steps_(config.every_steps),
      members_(members),
      last_time_(start),
      last_step_(first_step) {}

bool CheckpointTracker::Due(absl::Time now, int64_t step) const {
  if (outstanding_) return false;
  if (every_ > absl::ZeroDuration() && now - last_time_ >= every_) return true;
  return every_steps_ > 0 && step - last_step_ >= every_steps_;
}

void CheckpointTracker::Marked(absl::Time now, int64_t step) {
  outstanding_ = true;
  last_time_ = now;
  last_step_ = step;
}

bool CheckpointTracker::Saved(const MemberKey& member, int64_t step) {
  if (step <= newest_) return false;
  std::set<MemberKey>& members = saved_[step];
  members.insert(member);
  if (static_cast<int>(members.size()) < members_) {
    if (saved_.size() > kMaxUnderWay) saved_.erase(saved_.begin());
    return false;
  }
  newest_ = step;
  outstanding_ = false;
  saved_.erase(saved_.begin(), saved_.upper_bound(step));
  return true;
}

}  // namespace rivulet
