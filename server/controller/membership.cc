#include "server/controller/membership.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/join_first.h"
#include "common/base/status_macros.h"
#include "common/daemon/config.h"
#include "common/daemon/digest.h"
#include "common/daemon/grpc_util.h"

namespace rivulet {
namespace {

constexpr size_t kMaxNameBytes = 255;  // of hosts and addresses
constexpr int kMaxCheckpoints = 4096;
// Of long lists in messages this much is shown.
constexpr size_t kMostNamed = 8;  // members
constexpr size_t kMostSteps = 4;  // of one member, the newest

absl::Status Differs(absl::string_view what, const std::string& member,
                     const std::string& ours, const std::string& theirs) {
  return absl::InvalidArgumentError(
      absl::StrCat(member, " has another ", what, ": the controller has ", ours,
                   ", ", member, " ", absl::CHexEscape(theirs)));
}

// Printable, and of a length that fits into a message.
absl::Status CheckName(const std::string& member, absl::string_view what,
                       const std::string& text) {
  const bool printable =
      std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
  if (printable && text.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(member, ": its ", what, " is a text of ", text.size(),
                   printable ? " bytes" : " bytes that are not all printable",
                   "; allowed: at most ", kMaxNameBytes,
                   " printable ASCII characters without blanks"));
}

}  // namespace

std::string MemberName(const MemberKey& key) {
  return absl::StrCat(key.role == v1::ROLE_SHARD ? "shard " : "worker ",
                      key.index);
}

Membership::Membership(MembershipOptions options)
    : options_(std::move(options)), config_hash_(Sha256Hex(options_.config)) {}

absl::Status Membership::ConfigDiffers(const std::string& member,
                                       const v1::Hello& hello) const {
  const std::string keys = DescribeDifferences(
      "the controller", options_.config, member, hello.config());
  if (keys.empty() || hello.config().empty()) {
    return Differs("config", member, config_hash_, hello.config_hash());
  }
  return absl::InvalidArgumentError(
      absl::StrCat(member, " has another config: ", keys));
}

absl::Status Membership::CheckHello(const v1::Hello& hello) const {
  if (hello.role() != v1::ROLE_WORKER && hello.role() != v1::ROLE_SHARD) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello of role ", static_cast<int>(hello.role()),
                     "; a worker or a shard is allowed"));
  }
  const bool is_shard = hello.role() == v1::ROLE_SHARD;
  const uint32_t limit =
      static_cast<uint32_t>(is_shard ? options_.shards : options_.workers);
  const std::string name =
      absl::StrCat(is_shard ? "shard " : "worker ", hello.index());
  if (hello.protocol_min() > kProtocolVersion ||
      hello.protocol_max() < kOldestProtocolVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": no common protocol version: the controller speaks ",
        kOldestProtocolVersion, " to ", kProtocolVersion, ", ", name, " ",
        hello.protocol_min(), " to ", hello.protocol_max()));
  }
  if (hello.index() >= limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " does not exist: cluster.", is_shard ? "shards" : "workers",
        " is ", limit, ", so 0 to ", limit - 1, " are allowed"));
  }
  if (!hello.job().empty() && hello.job() != options_.job) {
    return Differs("job", name, options_.job, hello.job());
  }
  if (hello.config_hash() != config_hash_) return ConfigDiffers(name, hello);
  if (hello.manifest_hash() != options_.manifest_hash) {
    return Differs("model", name, options_.manifest_hash,
                   hello.manifest_hash());
  }
  if (is_shard && hello.address().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " does not say where workers dial it"));
  }
  RV_RETURN_IF_ERROR(CheckName(name, "host", hello.host()));
  RV_RETURN_IF_ERROR(CheckName(name, "machine", hello.machine()));
  RV_RETURN_IF_ERROR(CheckName(name, "address", hello.address()));
  if (hello.checkpoints_size() > kMaxCheckpoints) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", hello.checkpoints_size(),
                     " checkpoints; allowed: at most ", kMaxCheckpoints));
  }
  return absl::OkStatus();
}

absl::StatusOr<Membership::Joined> Membership::Join(StreamId stream,
                                                    const v1::Hello& hello,
                                                    absl::Time now) {
  RV_RETURN_IF_ERROR(CheckHello(hello));
  Joined joined;
  joined.key = {hello.role(), static_cast<int>(hello.index())};
  if (sealed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        MemberName(joined.key),
        " comes after the run has started; stop it and start everybody again "
        "with --resume"));
  }
  // Larger at each join, and across the controller's restarts.
  joined.incarnation = (options_.generation << 32) + ++joins_;
  joined.protocol = std::min(kProtocolVersion, hello.protocol_max());
  Member& member = members_[joined.key];
  if (member.stream != 0) joined.superseded = member.stream;
  member = {.stream = stream,
            .incarnation = joined.incarnation,
            .address = hello.address(),
            .host = hello.host(),
            .machine = hello.machine(),
            .checkpoints = {},
            .heard = now};
  if (hello.resume()) {
    for (uint64_t step : hello.checkpoints()) {
      member.checkpoints.insert(static_cast<int64_t>(step));
    }
  }
  return joined;
}

std::optional<MemberKey> Membership::Find(StreamId stream) const {
  for (const auto& [key, member] : members_) {
    if (member.stream == stream) return key;
  }
  return std::nullopt;
}

StreamId Membership::StreamOf(const MemberKey& key) const {
  const auto it = members_.find(key);
  return it == members_.end() ? 0 : it->second.stream;
}

std::vector<StreamId> Membership::Streams() const {
  std::vector<StreamId> streams;
  streams.reserve(members_.size());
  for (const auto& [key, member] : members_) streams.push_back(member.stream);
  return streams;
}

std::string Membership::Describe(const MemberKey& key) const {
  const auto it = members_.find(key);
  if (it == members_.end() || it->second.host.empty()) return MemberName(key);
  return absl::StrCat(MemberName(key), " (", it->second.host, ")");
}

int Membership::WorkersBeside(const MemberKey& key) const {
  const auto self = members_.find(key);
  if (self == members_.end() || self->second.machine.empty()) return 0;
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [&](const auto& other) {
        return other.first.role == v1::ROLE_WORKER &&
               other.second.machine == self->second.machine;
      }));
}

void Membership::Heard(StreamId stream, absl::Time now) {
  for (auto& [key, member] : members_) {
    if (member.stream == stream) member.heard = now;
  }
}

void Membership::Excuse(absl::Duration pause) {
  for (auto& [key, member] : members_) member.heard += pause;
}

std::vector<MemberKey> Membership::Silent(absl::Time now) const {
  std::vector<MemberKey> silent;
  for (const auto& [key, member] : members_) {
    if (finished_.contains(key)) continue;
    if (now - member.heard > options_.lease) silent.push_back(key);
  }
  return silent;
}

std::optional<MemberKey> Membership::Leave(StreamId stream) {
  const std::optional<MemberKey> key = Find(stream);
  if (key.has_value()) members_.erase(*key);
  return key;
}

bool Membership::AllFinished() const {
  return static_cast<int>(finished_.size()) ==
         options_.workers + options_.shards;
}

bool Membership::Complete() const {
  return static_cast<int>(members_.size()) ==
         options_.workers + options_.shards;
}

std::string Membership::Missing() const {
  std::vector<std::string> names;
  std::vector<std::string> commands;
  const auto look = [&](v1::Role role, int count, const char* command) {
    int present = 0;
    for (int i = 0; i < count; ++i) {
      const MemberKey key{role, i};
      if (members_.contains(key)) {
        ++present;
        continue;
      }
      names.push_back(MemberName(key));
      commands.push_back(absl::StrCat(command, i));
    }
    return absl::StrCat(present, " of ", count,
                        role == v1::ROLE_SHARD ? " shards" : " workers");
  };
  const std::string workers = look(v1::ROLE_WORKER, options_.workers,
                                   "rivulet-worker --config FILE --rank ");
  const std::string shards = look(v1::ROLE_SHARD, options_.shards,
                                  "rivulet-server --config FILE --shard ");
  std::string text = absl::StrCat(workers, ", ", shards);
  if (!names.empty()) {
    commands.resize(std::min(commands.size(), kMostNamed));
    absl::StrAppend(&text, ": waiting for ", JoinFirst(names, kMostNamed, ", "),
                    "; start with: ", absl::StrJoin(commands, "; "));
  }
  return text;
}

std::string Membership::WhoHoldsWhat() const {
  std::vector<std::string> all;
  std::vector<std::string> with;
  for (const auto& [key, member] : members_) {
    const std::set<int64_t>& steps = member.checkpoints;
    if (steps.empty()) {
      all.push_back(absl::StrCat(MemberName(key), " has none"));
      continue;
    }
    const size_t older = steps.size() - std::min(steps.size(), kMostSteps);
    const auto newest = std::next(steps.begin(), static_cast<int64_t>(older));
    with.push_back(absl::StrCat(MemberName(key), " has ",
                                older > 0 ? "..., " : "",
                                absl::StrJoin(newest, steps.end(), ", ")));
  }
  // Who has none comes first: that is where to look.
  all.insert(all.end(), with.begin(), with.end());
  return JoinFirst(all, kMostNamed, "; ");
}

absl::StatusOr<int64_t> Membership::CommonCheckpoint() const {
  const bool nobody =
      std::all_of(members_.begin(), members_.end(),
                  [](const auto& m) { return m.second.checkpoints.empty(); });
  if (nobody) return 0;
  const std::set<int64_t>& first = members_.begin()->second.checkpoints;
  for (auto step = first.rbegin(); step != first.rend(); ++step) {
    const bool held_by_all = std::all_of(
        members_.begin(), members_.end(),
        [&](const auto& m) { return m.second.checkpoints.contains(*step); });
    if (held_by_all) return *step;
  }
  return absl::NotFoundError(absl::StrCat(
      "no step has a checkpoint of everybody: ", WhoHoldsWhat(),
      "; start each where its checkpoints are, or all in a new run folder to "
      "begin at step 0"));
}

v1::View Membership::CurrentView() const {
  v1::View view;
  for (const auto& [key, member] : members_) {
    if (key.role != v1::ROLE_WORKER) continue;
    v1::Member* m = view.add_members();
    m->set_rank(static_cast<uint32_t>(key.index));
    m->set_incarnation(member.incarnation);
  }
  return view;
}

std::vector<std::string> Membership::ShardAddresses() const {
  std::vector<std::string> addresses;
  for (const auto& [key, member] : members_) {
    if (key.role == v1::ROLE_SHARD) addresses.push_back(member.address);
  }
  return addresses;
}

}  // namespace rivulet
