// Which shard owns which part of which parameter: a pure function of
// (manifest, number of shards), computed alike by workers and shards.
//
// The parameters, laid end to end in manifest order, are cut into equal parts
// by size, so large tensors are split and no shard carries more than 1.1 times
// the mean, as long as the mean is well above kSegmentAlignment: ResNet-20 on
// 128 shards is at 1.11. A cut never lands inside a tensor's quantization
// block: offsets inside a tensor are multiples of kSegmentAlignment.

#ifndef RIVULET_MODELS_MANIFEST_PARTITION_H_
#define RIVULET_MODELS_MANIFEST_PARTITION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/manifest/manifest.h"

namespace rivulet {

inline constexpr int64_t kSegmentAlignment = 256;

// Elements [begin, end) of one parameter, owned by one shard.
struct Segment {
  int tensor = 0;  // index into Manifest::parameters
  int64_t begin = 0;
  int64_t end = 0;
  int shard = 0;
  int local = 0;  // index into Partition::OfShard(shard)
  int64_t size() const { return end - begin; }
};

// Immutable after construction.
class Partition {
 public:
  // Tensors below four alignments stay whole where no shard then has more than
  // 1.1 times the mean, or than the fullest has when they are cut; no shard is
  // empty. InvalidArgument when num_shards < 1 or there are fewer aligned
  // pieces than shards. Costs O(tensors + shards log tensors), whatever the
  // tensors' sizes.
  static absl::StatusOr<Partition> Create(const Manifest& manifest,
                                          int num_shards);

  int num_shards() const { return static_cast<int>(by_shard_.size()); }
  // In manifest order, then by `begin`.
  absl::Span<const Segment> OfShard(int shard) const;
  absl::Span<const Segment> OfTensor(int tensor) const;
  int64_t elements_of_shard(int shard) const;

 private:
  Partition() = default;
  std::vector<std::vector<Segment>> by_shard_;
  std::vector<std::vector<Segment>> by_tensor_;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_MANIFEST_PARTITION_H_
