#include "data/dataset.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/nearest_name.h"
#include "common/base/status_macros.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/synthetic.h"

namespace rivulet {
namespace {

constexpr char kCifar10[] = "cifar10";
constexpr char kSynthetic[] = "synthetic";

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data set synthetic: ", what,
                                                 " is ", value, ", allowed is ",
                                                 least, " to ", most));
}

absl::Status CheckSynthetic(const DatasetOptions& options) {
  constexpr int64_t kMaxImages = 100'000'000;
  constexpr int64_t kMaxSide = 1024;
  constexpr int64_t kMaxClasses = 1000;
  // The prototypes are held in memory.
  constexpr int64_t kMaxPrototypeBytes = int64_t{1} << 28;
  const ImageShape& shape = options.synthetic_shape;
  RV_RETURN_IF_ERROR(CheckRange("number of training images",
                                options.synthetic_train, 1, kMaxImages));
  RV_RETURN_IF_ERROR(CheckRange("number of test images", options.synthetic_test,
                                1, kMaxImages));
  RV_RETURN_IF_ERROR(CheckRange("number of classes", options.synthetic_classes,
                                2, kMaxClasses));
  RV_RETURN_IF_ERROR(CheckRange("channels", shape.channels, 1, kMaxSide));
  RV_RETURN_IF_ERROR(CheckRange("height", shape.height, 1, kMaxSide));
  RV_RETURN_IF_ERROR(CheckRange("width", shape.width, 1, kMaxSide));
  return CheckRange("bytes of an image times classes",
                    shape.size() * options.synthetic_classes, 1,
                    kMaxPrototypeBytes);
}

}  // namespace

const std::vector<std::string>& BuiltInDatasets() {
  static const auto* const kNames = new std::vector<std::string>{
      kCifar10, "fashion_mnist", "mnist", kSynthetic};
  return *kNames;
}

absl::StatusOr<DatasetInfo> DescribeDataset(const DatasetOptions& options) {
  if (options.name == kCifar10) {
    return DatasetInfo{.shape = EmptyCifarSet().shape,
                       .num_classes = kCifarClasses,
                       .train_size = 5 * kCifarRecordsPerFile,
                       .test_size = kCifarRecordsPerFile};
  }
  if (const IdxSet* set = FindIdxSet(options.name); set != nullptr) {
    return DatasetInfo{.shape = kIdxShape,
                       .num_classes = kIdxClasses,
                       .train_size = set->train_images,
                       .test_size = set->test_images};
  }
  if (options.name == kSynthetic) {
    RV_RETURN_IF_ERROR(CheckSynthetic(options));
    return DatasetInfo{.shape = options.synthetic_shape,
                       .num_classes = options.synthetic_classes,
                       .train_size = options.synthetic_train,
                       .test_size = options.synthetic_test};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown data set \"", absl::CEscape(options.name), "\" (did you mean \"",
      NearestName(options.name, BuiltInDatasets()), "\"?); known are ",
      absl::StrJoin(BuiltInDatasets(), ", ")));
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(
    const DatasetOptions& options, Split split) {
  // Refuses unknown names and impossible sizes.
  RV_RETURN_IF_ERROR(DescribeDataset(options).status());
  if (options.name == kSynthetic) {
    return std::make_shared<const SyntheticDataset>(options, split);
  }
  if (options.path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data set ", options.name, ": no path to it was given"));
  }
  if (options.name == kCifar10) return OpenCifar10(options.path, split);
  return OpenIdx(*FindIdxSet(options.name), options.path, split);
}

}  // namespace rivulet
