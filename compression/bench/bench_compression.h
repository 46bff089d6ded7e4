// How fast and how small this machine compresses the gradient of a ResNet-50:
// each figure beside the bound that memory sets, measured in turns. Behind
// `rivulet bench compression`.
//
//   RV_ASSIGN_OR_RETURN(auto r, BenchCompression({}));
//   r.one_thread.pass_share_of_bound()

#ifndef RIVULET_COMPRESSION_BENCH_BENCH_COMPRESSION_H_
#define RIVULET_COMPRESSION_BENCH_BENCH_COMPRESSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rivulet {

struct CompressionBenchOptions {
  int repetitions = 15;     // >= 1; medians are reported
  int warm_up_steps = 300;  // >= 1
  double density = 0.001;   // (0, 1)
  int value_bits = 2;
  int threads = 2;  // of the second measurement; 1: none
  // Values of real gradients (finite), from which the tensors' are drawn.
  // Empty: Student's t with 3 degrees of freedom, scaled layer by layer.
  absl::Span<const float> samples = {};
};

// Seconds for all tensors of the model.
struct CompressionTimes {
  double momentum_bound = 0;  // u = m u + g; v += u: 20 bytes an element
  double feedback_bound = 0;  // v += a g: 12 bytes an element
  double momentum_pass = 0;   // Compress and Commit with momentum correction
  double feedback_pass = 0;   // ... without a momentum buffer: the default form
  double frames = 0;          // coding and framing of what the latter sends
  double feedback_share() const { return feedback_bound / feedback_pass; }
  double momentum_share() const { return momentum_bound / momentum_pass; }
  double whole_share() const {
    return feedback_bound / (feedback_pass + frames);
  }
};

struct PositionBits {
  double density = 0;
  double bits = 0;   // a position, coded
  double floor = 0;  // the entropy of random positions
};

// What a push or pull of a model takes, in bytes of frames.
struct SizeFigure {
  std::string name;
  int64_t bytes = 0;
};

struct CompressionBenchResult {
  std::string target;  // instruction set
  int64_t elements = 0;
  double copy_gb_per_s = 0;
  CompressionTimes one_thread;
  CompressionTimes more_threads;  // zeros with threads = 1
  double in_cache_gb_per_s = 0;   // of gradient, tensors of 64 KiB
  int64_t resnet50_push_bytes = 0;
  int64_t resnet50_pull_bytes = 0;  // 4 workers: twice the density
  int64_t ptb_lstm_push_bytes = 0;
  std::vector<SizeFigure> sizes;  // other settings
  std::vector<PositionBits> position_bits;
  double encode_mpos_per_s = 0;  // Rice
  double decode_mpos_per_s = 0;
  // A shard's decoding and adding of 64 pushes.
  double decode_add_gb_per_s = 0;  // of dense gradient
  double decode_add_mentries_per_s = 0;
};

// Blocks for the whole measurement; needs about a gigabyte. What is timed is
// checked first: Internal when the frames do not decode to what was sent.
// InvalidArgument for options out of range.
absl::StatusOr<CompressionBenchResult> BenchCompression(
    const CompressionBenchOptions& options);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_BENCH_BENCH_COMPRESSION_H_
