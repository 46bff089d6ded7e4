// What both ends of a stream know of the parts ("segments") that one shard
// owns, before any frame comes: how many elements each has, and whether it is
// one of the model's small tensors. A plain value; immutable after
// construction.

#ifndef RIVULET_COMPRESSION_SEGMENT_TABLE_H_
#define RIVULET_COMPRESSION_SEGMENT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace rivulet {

class SegmentTable {
 public:
  struct Info {
    int64_t size = 0;    // elements, at most 2^32 - 1
    bool small = false;  // biases and normalization: another class of plan
  };

  SegmentTable() = default;
  explicit SegmentTable(std::vector<Info> infos) : infos_(std::move(infos)) {
    // From the back: the next of each class.
    uint32_t next[2] = {count(), count()};
    next_.resize(infos_.size());
    for (size_t i = infos_.size(); i-- > 0;) {
      next_[i] = next[infos_[i].small ? 1 : 0];
      next[infos_[i].small ? 1 : 0] = static_cast<uint32_t>(i);
    }
  }
  // Segments of one class.
  explicit SegmentTable(absl::Span<const int64_t> sizes)
      : SegmentTable(OfSizes(sizes)) {}
  SegmentTable(std::initializer_list<int64_t> sizes)
      : SegmentTable(OfSizes({sizes.begin(), sizes.size()})) {}

  uint32_t count() const { return static_cast<uint32_t>(infos_.size()); }
  int64_t size(uint32_t segment) const { return infos_[segment].size; }
  // The next segment of the same class; count() after the last.
  uint32_t Next(uint32_t segment) const { return next_[segment]; }

 private:
  static std::vector<Info> OfSizes(absl::Span<const int64_t> sizes) {
    std::vector<Info> infos;
    infos.reserve(sizes.size());
    for (const int64_t size : sizes) infos.push_back({size, false});
    return infos;
  }

  std::vector<Info> infos_;
  std::vector<uint32_t> next_;
};

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_SEGMENT_TABLE_H_
