// What is in a frame, for people who look into one: `rivulet inspect`.

#ifndef RIVULET_COMPRESSION_FRAME_DESCRIPTION_H_
#define RIVULET_COMPRESSION_FRAME_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compression/frame.h"
#include "compression/segment_table.h"

namespace rivulet {

// One block: the parts of some segments of one class, written together.
struct BlockDescription {
  std::vector<uint32_t> segments;
  int64_t elements = 0;   // of all of them
  int64_t count = 0;      // values that are sent
  bool replaces = false;  // values replace the receiver's; elsewhere they add
  std::string positions;  // "Rice 9", "bitmap", or "all" where none are written
  std::string values;     // "fp32", "8 bits", "book of 2, adaptive"
  int64_t position_bytes = 0;
  int64_t parameter_bytes = 0;  // steps and books
  int64_t value_bytes = 0;
};

struct FrameDescription {
  int64_t num_bytes = 0;                 // with headers and checksums
  std::vector<BlockDescription> blocks;  // in the order of the bytes
  std::vector<SegmentUpdate> updates;    // what they decode to, likewise
};

// Of a concatenation of whole frames. Errors and limits are those of
// DecodeFrames. Stateless; thread-safe.
absl::StatusOr<FrameDescription> DescribeFrames(absl::string_view bytes,
                                                const SegmentTable& table);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_FRAME_DESCRIPTION_H_
