#include "server/controller/weights_assembler.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

// What is needed to build the model again, and nothing that differs between two
// runs of the same job: equal runs have equal files.
std::map<std::string, std::string> Metadata(const RunPlan& plan) {
  const ModelOptions& model = plan.model_options();
  return {{"format", "pt"},
          {"model", model.name},
          {"norm", plan.config().model.norm},
          {"group_size", absl::StrCat(model.group_size)},
          {"hidden", absl::StrJoin(model.hidden, ",")},
          {"channels", absl::StrCat(model.channels)},
          {"height", absl::StrCat(model.height)},
          {"width", absl::StrCat(model.width)},
          {"num_classes", absl::StrCat(model.num_classes)},
          {"data", plan.config().data.name}};
}

}  // namespace

WeightsAssembler::WeightsAssembler(std::shared_ptr<const RunPlan> plan)
    : plan_(std::move(plan)) {
  for (const TensorSpec& spec : plan_->manifest().parameters) {
    parameters_.emplace_back().values.resize(
        static_cast<size_t>(spec.num_elements()));
  }
  buffers_.values.resize(
      static_cast<size_t>(plan_->manifest().num_buffer_elements()));
}

absl::Status WeightsAssembler::Add(const v1::WeightsPart& part) {
  if (!part.buffers() && part.tensor() >= parameters_.size()) {
    return absl::OutOfRangeError(absl::StrCat("weights of tensor ",
                                              part.tensor(), ", there are ",
                                              parameters_.size()));
  }
  Target& target = part.buffers() ? buffers_ : parameters_[part.tensor()];
  const std::string name =
      part.buffers() ? "buffers"
                     : plan_->manifest().parameters[part.tensor()].name;
  const size_t count = part.data().size() / sizeof(float);
  if (part.data().empty() || part.data().size() % sizeof(float) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights of ", name, ": a piece of ", part.data().size(), " bytes"));
  }
  if (part.begin() > target.values.size() ||
      count > target.values.size() - part.begin()) {
    return absl::OutOfRangeError(
        absl::StrCat("weights of ", name, ": elements ", part.begin(), " to ",
                     part.begin() + count, " of ", target.values.size()));
  }
  const int64_t begin = static_cast<int64_t>(part.begin());
  const int64_t end = begin + static_cast<int64_t>(count);
  const auto next = target.filled.lower_bound(begin);
  const bool overlaps =
      (next != target.filled.end() && next->first < end) ||
      (next != target.filled.begin() && std::prev(next)->second > begin);
  if (overlaps) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", name, ": elements ", begin, " to ", end,
                     " overlap a piece that is here"));
  }
  std::memcpy(target.values.data() + begin, part.data().data(),
              part.data().size());
  target.filled[begin] = end;
  target.num_filled += end - begin;
  return absl::OkStatus();
}

absl::StatusOr<TensorFile> WeightsAssembler::Finish() {
  const Manifest& manifest = plan_->manifest();
  const auto check = [](const std::string& name, const Target& target) {
    const int64_t size = static_cast<int64_t>(target.values.size());
    if (target.num_filled == size) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("weights of ", name, ": ",
                                            target.num_filled, " of ", size,
                                            " elements came"));
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    RV_RETURN_IF_ERROR(check(manifest.parameters[i].name, parameters_[i]));
  }
  RV_RETURN_IF_ERROR(check("buffers", buffers_));
  TensorFile file;
  file.metadata = Metadata(*plan_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const TensorSpec& spec = manifest.parameters[i];
    file.tensors.push_back(
        {spec.name, spec.shape, std::move(parameters_[i].values)});
  }
  auto from = buffers_.values.cbegin();
  for (const TensorSpec& spec : manifest.buffers) {
    const auto to = from + spec.num_elements();
    file.tensors.push_back(
        {spec.name, spec.shape, std::vector<float>(from, to)});
    from = to;
  }
  return file;
}

}  // namespace rivulet
