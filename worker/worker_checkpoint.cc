#include "worker/worker_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "compression/selector.h"

namespace rivulet {
namespace {

// One tensor of the file and where it lives in the worker.
struct Slot {
  std::string name;
  const TensorSpec* spec = nullptr;
  absl::Span<float> values;
};

std::vector<Slot> SlotsOf(Model& model, PushPipeline& pipeline) {
  std::vector<Slot> slots;
  const Manifest& manifest = model.manifest();
  const int parameters = static_cast<int>(manifest.parameters.size());
  const int buffers = static_cast<int>(manifest.buffers.size());
  for (int i = 0; i < parameters; ++i) {
    const TensorSpec& spec = manifest.parameters[static_cast<size_t>(i)];
    slots.push_back({absl::StrCat("p.", spec.name), &spec, model.parameter(i)});
    GradientCompressor* const compressor = pipeline.compressor(i);
    if (compressor == nullptr) continue;
    slots.push_back(
        {absl::StrCat("u.", spec.name), &spec, compressor->momentum()});
    slots.push_back(
        {absl::StrCat("v.", spec.name), &spec, compressor->residual()});
  }
  for (int i = 0; i < buffers; ++i) {
    const TensorSpec& spec = manifest.buffers[static_cast<size_t>(i)];
    slots.push_back({absl::StrCat("b.", spec.name), &spec, model.buffer(i)});
  }
  // A compressor without momentum has none to keep.
  slots.erase(std::remove_if(slots.begin(), slots.end(),
                             [](const Slot& s) { return s.values.empty(); }),
              slots.end());
  return slots;
}

absl::StatusOr<std::string> Metadata(const TensorFile& file,
                                     const std::string& key) {
  const auto it = file.metadata.find(key);
  if (it == file.metadata.end()) {
    return absl::DataLossError(
        absl::StrCat("a worker's checkpoint without \"", key, "\""));
  }
  return it->second;
}

absl::StatusOr<int64_t> IntegerMetadata(const TensorFile& file,
                                        const std::string& key) {
  RV_ASSIGN_OR_RETURN(const std::string text, Metadata(file, key));
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::DataLossError(
        absl::StrCat("\"", key, "\" is \"", text, "\", not an integer"));
  }
  return value;
}

std::string SelectorKey(const TensorSpec& spec) {
  return absl::StrCat("selector.", spec.name);
}

absl::Status CheckTensors(const TensorFile& file,
                          const std::vector<Slot>& slots) {
  for (const Slot& slot : slots) {
    const NamedTensor* const tensor = file.Find(slot.name);
    if (tensor == nullptr) {
      return absl::DataLossError(
          absl::StrCat("a worker's checkpoint without tensor ", slot.name));
    }
    if (tensor->values.size() != slot.values.size()) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor ", slot.name, " has ", tensor->values.size(),
                       " elements in the checkpoint, ", slot.values.size(),
                       " in the model"));
    }
  }
  if (file.tensors.size() != slots.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint has ", file.tensors.size(),
                     " tensors, this worker ", slots.size()));
  }
  return absl::OkStatus();
}

}  // namespace

TensorFile MakeWorkerCheckpoint(const VoidCounts& voided, Model& model,
                                PushPipeline& pipeline) {
  TensorFile file;
  file.metadata["voided"] = absl::StrCat(voided.total);
  file.metadata["voided_in_a_row"] = absl::StrCat(voided.in_a_row);
  for (const Slot& slot : SlotsOf(model, pipeline)) {
    file.tensors.push_back({slot.name,
                            slot.spec->shape,
                            {slot.values.begin(), slot.values.end()}});
  }
  const std::vector<TensorSpec>& parameters = model.manifest().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    GradientCompressor* const compressor =
        pipeline.compressor(static_cast<int>(i));
    if (compressor == nullptr) break;
    file.metadata[SelectorKey(parameters[i])] =
        FormatSelectorState(compressor->selector_state());
  }
  return file;
}

absl::Status RestoreWorkerCheckpoint(const TensorFile& file, VoidCounts* voided,
                                     Model& model, PushPipeline& pipeline) {
  const std::vector<Slot> slots = SlotsOf(model, pipeline);
  RV_RETURN_IF_ERROR(CheckTensors(file, slots));
  VoidCounts counts;
  RV_ASSIGN_OR_RETURN(counts.total, IntegerMetadata(file, "voided"));
  RV_ASSIGN_OR_RETURN(counts.in_a_row,
                      IntegerMetadata(file, "voided_in_a_row"));
  std::vector<std::pair<GradientCompressor*, SelectorState>> selectors;
  const std::vector<TensorSpec>& parameters = model.manifest().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    GradientCompressor* const compressor =
        pipeline.compressor(static_cast<int>(i));
    if (compressor == nullptr) break;
    const std::string key = SelectorKey(parameters[i]);
    RV_ASSIGN_OR_RETURN(const std::string text, Metadata(file, key));
    const auto state = ParseSelectorState(text);
    if (!state.ok()) {
      return absl::DataLossError(
          absl::StrCat("\"", key, "\": ", state.status().message()));
    }
    selectors.emplace_back(compressor, *state);
  }

  for (const Slot& slot : slots) {
    const std::vector<float>& values = file.Find(slot.name)->values;
    std::copy(values.begin(), values.end(), slot.values.begin());
  }
  for (const auto& [compressor, state] : selectors) {
    compressor->set_selector_state(state);
  }
  *voided = counts;
  model.ParametersChanged();
  return absl::OkStatus();
}

}  // namespace rivulet
