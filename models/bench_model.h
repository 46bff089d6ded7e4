// How fast a model trains on this machine: whole steps on random data, and the
// bound that its convolutions alone set. Behind `rivulet bench model NAME`.
//
//   RV_ASSIGN_OR_RETURN(BenchResult r, BenchModel({.model = options,
//                                                  .runtime = {.threads =
//                                                  2}}));
//   r.images_per_second

#ifndef RIVULET_MODELS_BENCH_MODEL_H_
#define RIVULET_MODELS_BENCH_MODEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/model.h"

namespace rivulet {

struct BenchOptions {
  ModelOptions model;
  ModelRuntime runtime;
  int64_t batch = 128;  // images of a step, >= 1
  int warm_up_steps = 2;
  int steps = 4;        // in a repetition, >= 1
  int repetitions = 7;  // >= 1
};

// Medians over the repetitions; the conv-only bound is measured between them,
// so that both see the same machine.
struct BenchResult {
  double images_per_second = 0;  // median of the repetitions
  double images_per_second_mean = 0;
  double images_per_second_min = 0;
  double images_per_second_max = 0;
  // Of one step; their sum is not exactly the step's, being medians each.
  double forward_seconds = 0;   // with the loss
  double backward_seconds = 0;  // with its first gradient last to be ready
  double update_seconds = 0;    // SGD with momentum and weight decay
  // Multiplications and additions of convolutions and linear layers, forward
  // and both backward passes, of one image.
  double flops_per_image = 0;
  // All convolution primitives of a step alone, forward, backward by data and
  // by weights. 0 without convolutions.
  double conv_only_seconds = 0;
  double conv_only_images_per_second = 0;
  int64_t parameters = 0;
};

// Blocks for the whole measurement. InvalidArgument for options out of range;
// otherwise as CreateModel.
absl::StatusOr<BenchResult> BenchModel(const BenchOptions& options);

}  // namespace rivulet

#endif  // RIVULET_MODELS_BENCH_MODEL_H_
