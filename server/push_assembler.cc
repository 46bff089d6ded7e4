#include "server/push_assembler.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/grpc_util.h"

namespace rivulet {
namespace {

// Appends a piece of `step` to what is there, or begins it.
template <typename Whole>
absl::Status Append(const char* what, uint64_t step, std::string* data,
                    int64_t max_bytes, std::optional<Whole>* whole) {
  if (static_cast<int64_t>(data->size()) > kChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": a piece of ", data->size(), " bytes, at most ",
                     kChunkBytes, " are allowed"));
  }
  if (step > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": there is no step ", step));
  }
  if (!whole->has_value()) {
    whole->emplace();
    (*whole)->step = static_cast<int64_t>(step);
  }
  if (static_cast<uint64_t>((*whole)->step) != step) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": a piece of step ", step, " inside step ", (*whole)->step));
  }
  std::string& bytes = (*whole)->bytes;
  if (static_cast<int64_t>(bytes.size() + data->size()) > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of step ", step, ": more than ", max_bytes,
                     " bytes, which is all that it may have"));
  }
  if (bytes.empty()) {
    bytes = std::move(*data);
  } else {
    bytes.append(*data);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<WholePush>> PushAssembler::Add(v1::Push&& piece) {
  RV_RETURN_IF_ERROR(Append("push", piece.step(), piece.mutable_data(),
                            max_push_bytes_, &push_));
  if (!piece.has_commit()) return std::optional<WholePush>();
  push_->commit = std::move(*piece.mutable_commit());
  return std::exchange(push_, std::nullopt);
}

absl::StatusOr<std::optional<WholeStatistics>> PushAssembler::Add(
    v1::Statistics&& piece) {
  RV_RETURN_IF_ERROR(Append("statistics", piece.step(), piece.mutable_data(),
                            max_statistics_bytes_, &statistics_));
  if (!piece.last()) return std::optional<WholeStatistics>();
  return std::exchange(statistics_, std::nullopt);
}

}  // namespace rivulet
