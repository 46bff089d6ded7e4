// Who takes part in a run: joins, incarnations, leases, who is missing, and who
// is done. Decisions only; the streams are the controller's.
//
// Thread-compatible; time comes in as an argument.

#ifndef RIVULET_SERVER_CONTROLLER_MEMBERSHIP_H_
#define RIVULET_SERVER_CONTROLLER_MEMBERSHIP_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/controller.pb.h"
#include "server/stream_hub.h"

namespace rivulet {

struct MemberKey {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int index = 0;  // rank or shard
  friend auto operator<=>(const MemberKey&, const MemberKey&) = default;
};

// "worker 1", "shard 0".
std::string MemberName(const MemberKey& key);

struct MembershipOptions {
  int workers = 1;
  int shards = 1;
  std::string job;     // 32 hexadecimal digits
  std::string config;  // canonical, as CanonicalConfig gives it
  std::string manifest_hash;
  uint64_t generation = 1;  // of the controller, below 2^32
  absl::Duration lease = absl::Seconds(30);
};

class Membership {
 public:
  explicit Membership(MembershipOptions options);

  struct Joined {
    MemberKey key;
    uint64_t incarnation = 0;
    uint32_t protocol = 0;
    std::optional<StreamId> superseded;  // stream to end with ABORTED
  };

  // A daemon says hello on `stream`. InvalidArgument names both sides' values
  // of what differs (protocol, job, keys of the config, model), and a rank or
  // shard that does not exist; FailedPrecondition once sealed.
  absl::StatusOr<Joined> Join(StreamId stream, const v1::Hello& hello,
                              absl::Time now);

  // From here on the members are fixed.
  void Seal() { sealed_ = true; }

  // The member of a stream, if it is a current one.
  std::optional<MemberKey> Find(StreamId stream) const;
  StreamId StreamOf(const MemberKey& key) const;
  std::vector<StreamId> Streams() const;
  // "worker 1 (host)" for messages.
  std::string Describe(const MemberKey& key) const;

  // Workers on the member's machine, itself included if it is one; 0 where the
  // machine is not known.
  int WorkersBeside(const MemberKey& key) const;

  // Keeps the lease of a member.
  void Heard(StreamId stream, absl::Time now);
  // For so long nobody could be heard: everybody's lease is longer by that.
  void Excuse(absl::Duration pause);
  // Members that are connected, not finished, and silent beyond the lease.
  std::vector<MemberKey> Silent(absl::Time now) const;
  // The stream is gone. Its member, if it was current.
  std::optional<MemberKey> Leave(StreamId stream);

  void SetFinished(const MemberKey& key) { finished_.insert(key); }
  bool finished(const MemberKey& key) const { return finished_.contains(key); }
  bool AllFinished() const;

  // Whether every worker and shard is connected.
  bool Complete() const;
  // "1 of 2 workers, 2 of 2 shards: waiting for worker 1; start with:
  // rivulet-worker --config FILE --rank 1".
  std::string Missing() const;

  // Newest step of which every member, started with --resume, holds a
  // checkpoint; 0 when nobody has any. NotFound, naming who has what, when some
  // have checkpoints but no step is everybody's: to begin at 0 would quietly
  // give up what they have. Call when Complete.
  absl::StatusOr<int64_t> CommonCheckpoint() const;
  v1::View CurrentView() const;                     // in rank order
  std::vector<std::string> ShardAddresses() const;  // in shard order

 private:
  struct Member {
    StreamId stream = 0;
    uint64_t incarnation = 0;
    std::string address;
    std::string host;
    std::string machine;
    std::set<int64_t> checkpoints;  // empty without --resume
    absl::Time heard;
  };

  absl::Status CheckHello(const v1::Hello& hello) const;
  absl::Status ConfigDiffers(const std::string& member,
                             const v1::Hello& hello) const;
  // "worker 1 has none; worker 0 has 20, 40".
  std::string WhoHoldsWhat() const;

  const MembershipOptions options_;
  const std::string config_hash_;
  bool sealed_ = false;
  uint64_t joins_ = 0;
  std::map<MemberKey, Member> members_;
  std::set<MemberKey> finished_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_MEMBERSHIP_H_
