#include "data/batch_loader.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/base/bounded_queue.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "data/augment.h"

namespace rivulet {
namespace {

// Step s's place in its epoch.
struct EpochPosition {
  int64_t epoch = 0;
  int64_t begin = 0;  // of the global batch, in the epoch's order
  int64_t size = 0;   // of the global batch
};

Placement DrawPlacement(const LoaderOptions& options, int64_t epoch,
                        uint32_t sample) {
  Placement placement;
  if (options.augment == Augment::kNone) return placement;
  RandomStream rng(options.seed, RandomPurpose::kAugment,
                   static_cast<uint64_t>(epoch), sample);
  const uint32_t positions = static_cast<uint32_t>(2 * options.pad + 1);
  placement.top = static_cast<int64_t>(rng.UniformInt(positions)) - options.pad;
  placement.left =
      static_cast<int64_t>(rng.UniformInt(positions)) - options.pad;
  if (options.augment == Augment::kPadCropFlip) {
    placement.mirrored = rng.UniformInt(2) == 1;
  }
  return placement;
}

}  // namespace

Slice SliceOf(int64_t batch_size, int members, int position) {
  RV_CHECK_GE(batch_size, 0);
  RV_CHECK(position >= 0 && position < members)
      << "position " << position << " of " << members;
  const int64_t share = batch_size / members;
  const int64_t rest = batch_size % members;
  const int64_t begin = share * position + std::min<int64_t>(position, rest);
  return {.begin = begin, .end = begin + share + (position < rest ? 1 : 0)};
}

int64_t StepsPerEpoch(int64_t num_samples, int64_t batch_size, bool drop_last) {
  RV_CHECK_GE(num_samples, 0);
  RV_CHECK_GT(batch_size, 0);
  const bool partial = !drop_last && num_samples % batch_size != 0;
  return num_samples / batch_size + (partial ? 1 : 0);
}

class BatchLoader::Worker {
 public:
  Worker(std::shared_ptr<const Dataset> dataset, LoaderOptions options)
      : dataset_(std::move(dataset)),
        options_(options),
        normalizer_(*dataset_),
        steps_per_epoch_(StepsPerEpoch(dataset_->size(), options.batch_size,
                                       options.drop_last)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { Stop(); }

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  void Start(int64_t first_step, int64_t last_step, int members, int position) {
    RV_CHECK_GE(first_step, 0);
    RV_CHECK(position >= 0 && position < members);
    Stop();
    last_step_ = last_step;
    failure_ = absl::OkStatus();
    queue_ = std::make_unique<Queue>(static_cast<size_t>(options_.prefetch));
    thread_ = std::thread([this, first_step, last_step, members, position] {
      Prefetch(first_step, last_step, members, position);
    });
  }

  absl::StatusOr<Batch> Next() {
    if (queue_ == nullptr) {
      return absl::FailedPreconditionError("the batch loader was not started");
    }
    RV_RETURN_IF_ERROR(failure_);
    std::optional<absl::StatusOr<Batch>> next = queue_->Pop();
    if (!next.has_value()) {
      return absl::OutOfRangeError(
          absl::StrCat("no batch after step ", last_step_ - 1));
    }
    failure_ = next->status();
    return *std::move(next);
  }

  absl::StatusOr<Batch> Make(int64_t step, int members, int position) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    RV_ASSIGN_OR_RETURN(const EpochPosition at, Locate(step));
    const std::shared_ptr<const Order> order = OrderOf(at.epoch);
    const Slice slice = SliceOf(at.size, members, position);
    const size_t image_size = static_cast<size_t>(dataset_->shape().size());
    Batch batch;
    batch.step = step;
    batch.images.resize(static_cast<size_t>(slice.size()) * image_size);
    batch.labels.resize(static_cast<size_t>(slice.size()));
    std::vector<uint8_t> pixels(image_size);
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      const uint32_t sample =
          (*order)[static_cast<size_t>(at.begin + slice.begin) + i];
      RV_ASSIGN_OR_RETURN(batch.labels[i],
                          dataset_->Read(sample, absl::MakeSpan(pixels)));
      normalizer_.Apply(
          pixels, DrawPlacement(options_, at.epoch, sample),
          absl::MakeSpan(batch.images).subspan(i * image_size, image_size));
    }
    return batch;
  }

 private:
  using Queue = BoundedQueue<absl::StatusOr<Batch>>;
  using Order = std::vector<uint32_t>;

  // Runs in thread_. An error is the last thing it puts into the queue.
  void Prefetch(int64_t first_step, int64_t last_step, int members,
                int position) {
    for (int64_t step = first_step; step < last_step; ++step) {
      absl::StatusOr<Batch> batch = Make(step, members, position);
      const bool ok = batch.ok();
      if (!queue_->Push(std::move(batch)) || !ok) break;
    }
    queue_->Close();
  }

  void Stop() {
    if (queue_ != nullptr) queue_->Close();
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<EpochPosition> Locate(int64_t step) const {
    RV_CHECK_GE(step, 0);
    if (steps_per_epoch_ == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "a data set of ", dataset_->size(), " samples has no whole batch of ",
          options_.batch_size, ", and incomplete ones are dropped"));
    }
    EpochPosition at;
    at.epoch = step / steps_per_epoch_;
    at.begin = step % steps_per_epoch_ * options_.batch_size;
    at.size = std::min(options_.batch_size, dataset_->size() - at.begin);
    return at;
  }

  // The epoch's permutation. The last one made is kept: steps come in order.
  std::shared_ptr<const Order> OrderOf(int64_t epoch) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (order_ != nullptr && order_epoch_ == epoch) return order_;
    }
    auto order = std::make_shared<Order>(static_cast<size_t>(dataset_->size()));
    std::iota(order->begin(), order->end(), 0u);
    RandomStream rng(options_.seed, RandomPurpose::kShuffle,
                     static_cast<uint64_t>(epoch));
    rng.Shuffle(absl::MakeSpan(*order));
    MutexLock lock(&mu_);
    order_ = order;
    order_epoch_ = epoch;
    return order;
  }

  const std::shared_ptr<const Dataset> dataset_;
  const LoaderOptions options_;
  const Normalizer normalizer_;
  const int64_t steps_per_epoch_;

  // Touched by the caller's thread alone; the background thread uses queue_
  // between its start and its join, while it does not change.
  int64_t last_step_ = 0;
  absl::Status failure_;
  std::unique_ptr<Queue> queue_;
  std::thread thread_;

  mutable Mutex mu_;
  mutable std::shared_ptr<const Order> order_ ABSL_GUARDED_BY(mu_);
  mutable int64_t order_epoch_ ABSL_GUARDED_BY(mu_) = 0;
};

BatchLoader::BatchLoader(std::shared_ptr<const Dataset> dataset,
                         LoaderOptions options) {
  RV_CHECK(dataset != nullptr);
  RV_CHECK_GT(options.batch_size, 0);
  RV_CHECK_GT(options.prefetch, 0);
  RV_CHECK_GE(options.pad, 0);
  RV_CHECK_LE(dataset->size(), int64_t{UINT32_MAX});
  worker_ = std::make_unique<Worker>(std::move(dataset), options);
}

BatchLoader::~BatchLoader() = default;

int64_t BatchLoader::steps_per_epoch() const {
  return worker_->steps_per_epoch();
}

void BatchLoader::Start(int64_t first_step, int64_t last_step, int members,
                        int position) {
  worker_->Start(first_step, last_step, members, position);
}

absl::StatusOr<Batch> BatchLoader::Next() { return worker_->Next(); }

absl::StatusOr<Batch> BatchLoader::Make(int64_t step, int members,
                                        int position) const {
  return worker_->Make(step, members, position);
}

absl::StatusOr<Batch> ReadInOrder(const Dataset& dataset, int64_t begin,
                                  int64_t end) {
  if (begin < 0 || begin > end || end > dataset.size()) {
    return absl::OutOfRangeError(absl::StrCat(
        "images ", begin, " to ", end, " of a data set of ", dataset.size()));
  }
  const Normalizer normalizer(dataset);
  const size_t image_size = static_cast<size_t>(dataset.shape().size());
  Batch batch;
  batch.images.resize(static_cast<size_t>(end - begin) * image_size);
  batch.labels.resize(static_cast<size_t>(end - begin));
  std::vector<uint8_t> pixels(image_size);
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    RV_ASSIGN_OR_RETURN(
        batch.labels[i],
        dataset.Read(begin + static_cast<int64_t>(i), absl::MakeSpan(pixels)));
    normalizer.Apply(
        pixels, Placement{},
        absl::MakeSpan(batch.images).subspan(i * image_size, image_size));
  }
  return batch;
}

}  // namespace rivulet
