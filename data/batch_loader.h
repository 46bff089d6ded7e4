// Batches of augmented, normalized images as a function of (seed, step): which
// samples a step uses, and how each is augmented, depends on nothing else, so
// any number of workers sees the same global batch and nothing but the step has
// to be checkpointed.
//
//   RV_ASSIGN_OR_RETURN(auto set, OpenDataset(options, Split::kTrain));
//   BatchLoader loader(set, {.batch_size = 128, .seed = 1,
//                            .augment = Augment::kPadCropFlip});
//   loader.Start(first_step, last_step, members, position);  // prefetches
//   RV_ASSIGN_OR_RETURN(Batch batch, loader.Next());

#ifndef RIVULET_DATA_BATCH_LOADER_H_
#define RIVULET_DATA_BATCH_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace rivulet {

struct Batch {
  int64_t step = 0;
  std::vector<float> images;    // [n, channels, height, width], normalized
  std::vector<int32_t> labels;  // [n]
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

// The part of a global batch that one member of the view takes: `members` equal
// parts, remainders to the lower positions. Sizes differ by at most one; a part
// may be empty.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
Slice SliceOf(int64_t batch_size, int members, int position);

enum class Augment { kNone, kPadCropFlip, kPadCrop };

struct LoaderOptions {
  int64_t batch_size = 128;  // global
  uint64_t seed = 1;
  Augment augment = Augment::kNone;
  int64_t pad = 4;        // pixels of zero (after normalization: black) padding
  bool drop_last = true;  // drop an epoch's incomplete last batch
  int64_t prefetch = 4;   // batches made ahead
};

// Global steps in an epoch. 0 when drop_last leaves none.
int64_t StepsPerEpoch(int64_t num_samples, int64_t batch_size, bool drop_last);

// Thread-compatible; owns one background thread. Make() is const and may be
// called from any thread.
//
// The samples of epoch e are a permutation that depends on (seed, e) alone;
// step s of the run uses positions [b * batch_size, (b + 1) * batch_size) of
// epoch s / steps_per_epoch(), with b = s % steps_per_epoch(). How a sample is
// augmented depends on (seed, e, sample).
class BatchLoader {
 public:
  // `options` must be sane: batch_size, prefetch >= 1 and pad >= 0.
  BatchLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options);
  ~BatchLoader();  // stops the background thread

  int64_t steps_per_epoch() const;

  // Begins to prepare this member's part of the global batches of steps
  // [first, last); position `position` of `members`, in [0, members). May be
  // called again, which drops what was prepared.
  void Start(int64_t first_step, int64_t last_step, int members, int position);

  // The next batch, in step order; blocks until it is made. Its part may be
  // empty. OutOfRange past the last step; FailedPrecondition before Start() and
  // when an epoch has no step; the data set's own error when a record cannot be
  // read, and from then on.
  absl::StatusOr<Batch> Next();

  // One batch, without the background thread; a pure function of its arguments
  // and the options.
  absl::StatusOr<Batch> Make(int64_t step, int members, int position) const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

// Images [begin, end) of a data set in its own order, normalized and not
// augmented: what evaluation uses.
absl::StatusOr<Batch> ReadInOrder(const Dataset& dataset, int64_t begin,
                                  int64_t end);

}  // namespace rivulet

#endif  // RIVULET_DATA_BATCH_LOADER_H_
