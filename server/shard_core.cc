#include "server/shard_core.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

std::vector<int64_t> SizesOf(absl::Span<const Segment> segments) {
  std::vector<int64_t> sizes;
  sizes.reserve(segments.size());
  for (const Segment& s : segments) sizes.push_back(s.size());
  return sizes;
}

bool SameCommit(const v1::Commit& a, const v1::Commit& b) {
  return a.voided() == b.voided() && a.samples() == b.samples() &&
         a.crc32c() == b.crc32c();
}

std::string Description(const v1::Commit& commit) {
  if (commit.voided()) return "voided";
  return absl::StrCat(commit.samples(), " samples with CRC32C ",
                      absl::Hex(commit.crc32c(), absl::kZeroPad8));
}

std::string PushName(int rank, int64_t step, int shard) {
  return absl::StrCat("push of worker ", rank, " for step ", step, " to shard ",
                      shard);
}

std::string SegmentName(const Manifest& manifest, const Segment& s) {
  return absl::StrCat(manifest.parameters[s.tensor].name, "@", s.begin);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardCore>> ShardCore::Create(
    std::shared_ptr<const RunPlan> plan, int shard) {
  if (shard < 0 || shard >= plan->partition().num_shards()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " does not exist: cluster.shards is ",
                     plan->partition().num_shards(), ", so 0 to ",
                     plan->partition().num_shards() - 1, " are allowed"));
  }
  RV_RETURN_IF_ERROR(plan->shard_optimizer().Validate());
  return std::unique_ptr<ShardCore>(new ShardCore(std::move(plan), shard));
}

ShardCore::ShardCore(std::shared_ptr<const RunPlan> plan, int shard)
    : plan_(std::move(plan)),
      shard_(shard),
      sizes_(SizesOf(plan_->partition().OfShard(shard))),
      weights_(
          static_cast<size_t>(plan_->partition().elements_of_shard(shard))),
      optimizer_(plan_->partition().elements_of_shard(shard),
                 plan_->shard_optimizer()),
      aggregator_(sizes_),
      compressors_(sizes_.size()),
      pushes_(static_cast<size_t>(plan_->config().cluster.workers)),
      last_commits_(pushes_.size()) {
  offsets_.push_back(0);
  for (int64_t size : sizes_) offsets_.push_back(offsets_.back() + size);
  std::vector<float> whole;
  for (const Segment& s : segments()) {
    const TensorSpec& spec = plan_->manifest().parameters[s.tensor];
    whole.resize(static_cast<size_t>(spec.num_elements()));
    InitializeTensor(spec, static_cast<uint64_t>(plan_->config().train.seed),
                     s.tensor, absl::MakeSpan(whole));
    std::copy(whole.begin() + s.begin, whole.begin() + s.end,
              weights_.begin() + offsets_[s.local]);
  }
  view_ = weights_;
}

absl::Status ShardCore::SetView(const v1::View& view) {
  if (num_committed_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", shard_, ": the view changes while step ",
                     version_, " is collected"));
  }
  const int expected = static_cast<int>(pushes_.size());
  if (view.members_size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("view of ", view.members_size(),
                     " workers, cluster.workers is ", expected));
  }
  for (int i = 0; i < expected; ++i) {
    if (view.members(i).rank() != static_cast<uint32_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "view: member ", i, " has rank ", view.members(i).rank()));
    }
  }
  for (int i = 0; i < expected; ++i) {
    pushes_[i].incarnation =
        std::max(pushes_[i].incarnation, view.members(i).incarnation());
  }
  return absl::OkStatus();
}

absl::Status ShardCore::Admit(int rank, uint64_t incarnation) {
  if (rank < 0 || rank >= static_cast<int>(pushes_.size())) {
    return absl::OutOfRangeError(absl::StrCat("worker ", rank,
                                              " is not in the view of ",
                                              pushes_.size(), " workers"));
  }
  PendingPush& push = pushes_[rank];
  if (incarnation < push.incarnation) {
    return absl::AbortedError(absl::StrCat("worker ", rank, ": incarnation ",
                                           incarnation, " was superseded by ",
                                           push.incarnation));
  }
  push.incarnation = incarnation;
  return absl::OkStatus();
}

absl::StatusOr<PushResult> ShardCore::Recognize(
    int rank, int64_t step, const v1::Commit& commit) const {
  if (step > version_) {
    return absl::FailedPreconditionError(absl::StrCat(
        PushName(rank, step, shard_), ": this shard collects step ", version_));
  }
  const v1::Commit* known = nullptr;
  if (step == version_) {
    if (!pushes_[rank].committed) return PushResult::kAccepted;
    known = &pushes_[rank].commit;
  } else if (step == version_ - 1 && last_update_ != nullptr) {
    known = &last_commits_[rank];
  }
  // Of older steps nothing is kept; they are done whatever this push holds.
  if (known != nullptr && !SameCommit(*known, commit)) {
    return absl::FailedPreconditionError(absl::StrCat(
        PushName(rank, step, shard_), " is here as ", Description(*known),
        ", and came again as ", Description(commit)));
  }
  return PushResult::kRepeated;
}

absl::StatusOr<std::vector<SegmentUpdate>> ShardCore::Decode(
    int rank, int64_t step, absl::string_view bytes,
    const v1::Commit& commit) const {
  const std::string name = PushName(rank, step, shard_);
  if (commit.voided()) return std::vector<SegmentUpdate>();
  const uint32_t crc = Crc32c(bytes);
  if (crc != commit.crc32c()) {
    return absl::DataLossError(absl::StrCat(
        name, ": CRC32C is ", absl::Hex(crc, absl::kZeroPad8),
        ", the commit says ", absl::Hex(commit.crc32c(), absl::kZeroPad8)));
  }
  if (commit.samples() > plan_->config().train.batch_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", commit.samples(), " samples, train.batch_size is ",
        plan_->config().train.batch_size));
  }
  if (commit.samples() == 0 && !bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", bytes.size(), " bytes for a slice of no samples"));
  }
  auto updates = DecodeFrames(bytes, plan_->segment_table(shard_));
  if (!updates.ok()) return Annotate(updates.status(), name);
  std::vector<bool> seen(sizes_.size(), false);
  for (const SegmentUpdate& u : *updates) {
    if (u.mode == SegmentUpdate::Mode::kReplace) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": segment ", u.segment,
                       " replaces weights; pushes may only add"));
    }
    if (seen[u.segment]) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": segment ", u.segment, " comes twice"));
    }
    seen[u.segment] = true;
  }
  return updates;
}

absl::StatusOr<PushResult> ShardCore::SubmitPush(int rank, uint64_t incarnation,
                                                 int64_t step,
                                                 absl::string_view bytes,
                                                 const v1::Commit& commit) {
  RV_RETURN_IF_ERROR(Admit(rank, incarnation));
  RV_ASSIGN_OR_RETURN(PushResult result, Recognize(rank, step, commit));
  if (result == PushResult::kRepeated) return result;
  RV_ASSIGN_OR_RETURN(std::vector<SegmentUpdate> updates,
                      Decode(rank, step, bytes, commit));
  PendingPush& push = pushes_[rank];
  push.committed = true;
  push.commit = commit;
  push.updates = std::move(updates);
  ++num_committed_;
  return PushResult::kAccepted;
}

void ShardCore::Optimize(v1::UpdateEnd* end) {
  std::vector<Contribution> contributions;
  bool any_voided = false;
  for (size_t rank = 0; rank < pushes_.size(); ++rank) {
    const PendingPush& push = pushes_[rank];
    if (push.commit.voided()) {
      any_voided = true;
      continue;
    }
    contributions.push_back({static_cast<int>(rank),
                             static_cast<int64_t>(push.commit.samples()),
                             push.updates});
  }
  if (TotalSamples(contributions) == 0) {
    // A step of zeros would still decay a momentum buffer: nobody counted, so
    // nothing moves.
    end->set_none(true);
    return;
  }
  if (any_voided) {
    for (const Contribution& c : contributions) {
      v1::Contributor* contributor = end->add_contributors();
      contributor->set_rank(static_cast<uint32_t>(c.rank));
      contributor->set_incarnation(pushes_[c.rank].incarnation);
      contributor->set_push_step(static_cast<uint64_t>(version_));
      contributor->set_weight(static_cast<uint32_t>(c.samples));
    }
  }
  optimizer_.Step(plan_->LearningRate(version_),
                  aggregator_.Mean(std::move(contributions)),
                  absl::MakeSpan(weights_));
}

absl::Status ShardCore::EncodeChange(std::string* bytes) {
  const bool exact = plan_->DownIsExact(version_);
  FrameEncoder encoder(&plan_->segment_table(shard_));
  CompressedTensor compressed;
  for (const Segment& s : segments()) {
    const absl::Span<float> w = SegmentOf(weights_, s.local);
    const absl::Span<float> v = SegmentOf(view_, s.local);
    const std::string& name = plan_->manifest().parameters[s.tensor].name;
    if (exact) {
      const auto bad = std::find_if(w.begin(), w.end(),
                                    [](float x) { return !std::isfinite(x); });
      if (bad != w.end()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "step ", version_, ": the weights of ", name,
            " are no longer finite (element ", s.begin + (bad - w.begin()),
            "); a lower learning rate may help"));
      }
      encoder.AddExact(static_cast<uint32_t>(s.local), w);
      std::copy(w.begin(), w.end(), v.begin());
      continue;
    }
    const NoiseKey noise = {static_cast<uint64_t>(plan_->config().train.seed),
                            static_cast<uint64_t>(version_),
                            NoiseStreamOfShard(shard_, s.tensor)};
    const absl::Status status = compressors_[s.local].Compress(
        w, plan_->Down(s.tensor, version_), noise, v, &compressed);
    if (!status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", version_, ": ", name, ": ", status.message()));
    }
    if (compressed.count() > 0) {
      encoder.Add(static_cast<uint32_t>(s.local), compressed, 0, s.size());
    }
  }
  *bytes = encoder.empty() ? std::string() : encoder.Finish();
  return absl::OkStatus();
}

std::vector<int> ShardCore::Awaited() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < pushes_.size(); ++rank) {
    if (!pushes_[rank].committed) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

absl::StatusOr<std::shared_ptr<const ShardUpdate>> ShardCore::MakeUpdate(
    uint64_t schedule_seq) {
  RV_CHECK(Ready()) << num_committed_ << " of " << pushes_.size();
  auto update = std::make_shared<ShardUpdate>();
  update->step = version_;
  Optimize(&update->end);
  RV_RETURN_IF_ERROR(EncodeChange(&update->bytes));
  update->end.set_version(static_cast<uint64_t>(version_) + 1);
  update->end.set_schedule_seq(schedule_seq);
  for (size_t rank = 0; rank < pushes_.size(); ++rank) {
    PendingPush& push = pushes_[rank];
    last_commits_[rank] = push.commit;
    push.committed = false;
    push.updates = {};
  }
  num_committed_ = 0;
  ++version_;
  last_update_ = std::move(update);
  return last_update_;
}

std::shared_ptr<const ShardUpdate> ShardCore::FindUpdate(int64_t step) const {
  if (last_update_ == nullptr || last_update_->step != step) return nullptr;
  return last_update_;
}

int64_t ShardCore::max_push_bytes() const {
  return MaxFrameBytes(plan_->partition().elements_of_shard(shard_));
}

absl::Span<float> ShardCore::SegmentOf(std::vector<float>& values,
                                       int local) const {
  return absl::MakeSpan(values.data() + offsets_[local],
                        static_cast<size_t>(sizes_[local]));
}

absl::Span<const float> ShardCore::weights(int local) const {
  return {weights_.data() + offsets_[local],
          static_cast<size_t>(sizes_[local])};
}

absl::Span<const float> ShardCore::view(int local) const {
  return {view_.data() + offsets_[local], static_cast<size_t>(sizes_[local])};
}

TensorFile ShardCore::Save() const {
  RV_CHECK_EQ(num_committed_, 0u) << "checkpoint inside step " << version_;
  TensorFile file;
  file.metadata["version"] = absl::StrCat(version_);
  // Save is logically const, but an optimizer hands its state out as mutable.
  const absl::Span<const float> momentum = const_cast<Sgd&>(optimizer_).state();
  const auto add = [&](const char* prefix, const Segment& s,
                       absl::Span<const float> flat) {
    const absl::Span<const float> part = flat.subspan(
        static_cast<size_t>(offsets_[s.local]), static_cast<size_t>(s.size()));
    file.tensors.push_back(
        {absl::StrCat(prefix, SegmentName(plan_->manifest(), s)),
         {s.size()},
         std::vector<float>(part.begin(), part.end())});
  };
  for (const Segment& s : segments()) {
    add("w.", s, weights_);
    add("v.", s, view_);
    if (!momentum.empty()) add("m.", s, momentum);
    file.metadata[absl::StrCat("selector.",
                               SegmentName(plan_->manifest(), s))] =
        FormatSelectorState(compressors_[s.local].selector_state());
  }
  return file;
}

absl::Status ShardCore::Load(const TensorFile& file) {
  const std::string context =
      absl::StrCat("checkpoint of shard ", shard_, ": ");
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(context, why));
  };
  const auto refuse = [&](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat(context, why));
  };
  int64_t version = 0;
  const auto text = file.metadata.find("version");
  if (text == file.metadata.end() ||
      !absl::SimpleAtoi(text->second, &version) || version < 0) {
    return damaged("no version in its metadata");
  }
  const bool has_momentum = !optimizer_.state().empty();
  const size_t kinds = has_momentum ? 3 : 2;
  if (file.tensors.size() != kinds * segments().size()) {
    return refuse(absl::StrCat("it has ", file.tensors.size(),
                               " tensors, this shard ",
                               kinds * segments().size()));
  }
  // Everything is found and measured first, so that a bad file changes nothing.
  struct Source {
    const float* from;
    float* to;
    size_t count;
  };
  std::vector<Source> copies;
  std::vector<SelectorState> selectors(sizes_.size());
  for (const Segment& s : segments()) {
    const std::string name = SegmentName(plan_->manifest(), s);
    float* const targets[] = {weights_.data(), view_.data(),
                              optimizer_.state().data()};
    const char* const prefixes[] = {"w.", "v.", "m."};
    for (size_t kind = 0; kind < kinds; ++kind) {
      const std::string full = absl::StrCat(prefixes[kind], name);
      const NamedTensor* tensor = file.Find(full);
      if (tensor == nullptr) return damaged(absl::StrCat("no tensor ", full));
      if (static_cast<int64_t>(tensor->values.size()) != s.size()) {
        return refuse(absl::StrCat(full, " has ", tensor->values.size(),
                                   " elements, this shard owns ", s.size()));
      }
      copies.push_back({tensor->values.data(),
                        targets[kind] + offsets_[s.local],
                        tensor->values.size()});
    }
    const auto selector = file.metadata.find(absl::StrCat("selector.", name));
    if (selector == file.metadata.end()) {
      return damaged(absl::StrCat("no selector state of ", name));
    }
    const auto state = ParseSelectorState(selector->second);
    if (!state.ok()) {
      return damaged(absl::StrCat("selector state of ", name, ": ",
                                  state.status().message()));
    }
    selectors[s.local] = *state;
  }
  for (const Source& c : copies) std::copy_n(c.from, c.count, c.to);
  for (size_t i = 0; i < selectors.size(); ++i) {
    compressors_[i].set_selector_state(selectors[i]);
  }
  for (PendingPush& push : pushes_) {
    push.committed = false;
    push.updates.clear();
  }
  num_committed_ = 0;
  version_ = version;
  last_update_ = nullptr;
  return absl::OkStatus();
}

}  // namespace rivulet
