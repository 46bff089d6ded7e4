// Puts the pieces of one worker's pushes and statistics together, within limits
// that are enforced before anything is stored (proto/README.md, "Limits").
//
// No I/O. Thread-compatible; one per stream.

#ifndef RIVULET_SERVER_PUSH_ASSEMBLER_H_
#define RIVULET_SERVER_PUSH_ASSEMBLER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/exchange.pb.h"

namespace rivulet {

struct WholePush {
  int64_t step = 0;
  std::string bytes;
  v1::Commit commit;
};

struct WholeStatistics {
  int64_t step = 0;
  std::string bytes;
};

class PushAssembler {
 public:
  // Bytes that one push, and one set of statistics, may have.
  PushAssembler(int64_t max_push_bytes, int64_t max_statistics_bytes)
      : max_push_bytes_(max_push_bytes),
        max_statistics_bytes_(max_statistics_bytes) {}

  // The push once its commit is there, nothing before. InvalidArgument for a
  // piece above kChunkBytes, a push above the limit, or pieces of two steps
  // mixed; the assembler is of no more use then.
  absl::StatusOr<std::optional<WholePush>> Add(v1::Push&& piece);
  absl::StatusOr<std::optional<WholeStatistics>> Add(v1::Statistics&& piece);

 private:
  const int64_t max_push_bytes_;
  const int64_t max_statistics_bytes_;
  std::optional<WholePush> push_;
  std::optional<WholeStatistics> statistics_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_PUSH_ASSEMBLER_H_
