// Frames: the bytes in which compressed tensors travel. compression/README.md
// gives the format to the byte. A frame holds parts of several tensors
// ("segments", numbered by the receiver's table) and ends in a CRC32C.
//
//   FrameEncoder encoder(&table);
//   encoder.Add(segment_id, compressed, begin, end);
//   std::string bytes = encoder.Finish();
//
//   RV_ASSIGN_OR_RETURN(auto updates, DecodeFrames(bytes, table));
//   for (const SegmentUpdate& u : updates) u.AddTo(scale, segment(u.segment));

#ifndef RIVULET_COMPRESSION_FRAME_H_
#define RIVULET_COMPRESSION_FRAME_H_

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compression/compressed_tensor.h"
#include "compression/segment_table.h"

namespace rivulet {

inline constexpr uint8_t kFrameVersion = 2;

// What the frames of one step need at most for segments of `elements` in all:
// every element at 32 bits, plus 1/16 for positions, plus room for headers.
// Whoever collects frames refuses more.
inline constexpr int64_t MaxFrameBytes(int64_t elements) {
  return 4 * elements + elements / 4 + (64 << 10);
}

// Thread-compatible.
class FrameEncoder {
 public:
  // `table`, the receiver's, is borrowed; without it no parts are joined.
  explicit FrameEncoder(const SegmentTable* table = nullptr);
  FrameEncoder(FrameEncoder&&) noexcept;
  FrameEncoder& operator=(FrameEncoder&&) noexcept;
  ~FrameEncoder();

  // Adds elements [begin, end) of `tensor` as segment `segment`, whose size at
  // the receiver is end - begin. Segments are added in any order, each at most
  // once a frame. For a dense 4-, 8- or 16-bit tensor `begin` is a multiple of
  // kQuantizationBlock. A part in which nothing was selected adds nothing: the
  // receiver sees no update of that segment.
  void Add(uint32_t segment, const CompressedTensor& tensor, int64_t begin,
           int64_t end);
  // Adds raw values (finite, at least one) that replace the receiver's.
  void AddExact(uint32_t segment, absl::Span<const float> values);

  bool empty() const;  // no segment has been added
  void Clear();        // forgets what was added
  // About what Finish would return, and seldom less: positions count 16 bits.
  int64_t size_bytes() const;
  // The finished frame; the encoder is empty again. Picks the smallest of what
  // the format offers, by exact size: Rice-coded gaps or a bitmap, and small
  // parts of neighbours alone or joined. Without segments it is a valid frame
  // of six bytes.
  std::string Finish();

 private:
  struct Block;

  void Push(Block block);
  bool MayJoin(const Block& block, const Block& next) const;
  static Block Joined(const Block& block, const Block& next);
  static std::string Encoded(const Block& block);
  static void AppendBlock(const Block& block, const std::string& bytes,
                          uint32_t* next_segment, std::string* body);
  std::string EncodeBody();

  const SegmentTable* table_;
  std::vector<Block> blocks_;
  std::unordered_set<uint32_t> added_;
  int64_t estimate_ = 0;
};

// One segment's part of a frame, decoded. A plain value; thread-compatible.
struct SegmentUpdate {
  enum class Mode { kAddSparse, kAddDense, kReplace };
  uint32_t segment = 0;
  Mode mode = Mode::kAddSparse;
  std::vector<uint32_t> positions;  // kAddSparse: strictly increasing, in range
  std::vector<float> values;        // all finite

  // target[p] += scale * value (kAdd*). `target` is the whole segment.
  void AddTo(float scale, absl::Span<float> target) const;
  // Adds with scale 1, or replaces. Use for v̂.
  void ApplyTo(absl::Span<float> target) const;
};

// Decodes a concatenation of whole frames. `table` is the receiver's.
// Everything is checked before anything is returned: DataLoss for a bad
// checksum or a cut frame, InvalidArgument for a malformed one, OutOfRange for
// a segment or position beyond the table, Unimplemented for another version.
// Costs no more memory or time than the bytes and the table allow, whatever
// they hold. Stateless; thread-safe.
absl::StatusOr<std::vector<SegmentUpdate>> DecodeFrames(
    absl::string_view bytes, const SegmentTable& table);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_FRAME_H_
