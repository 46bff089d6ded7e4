#include "server/controller/metrics_file.h"

#include <cerrno>
#include <cstdio>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/text_file.h"
#include "models/checkpoint/atomic_file.h"

namespace rivulet {
namespace {

std::string Number(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%.6g", *value) : "";
}

}  // namespace

std::string MetricsHeader() {
  return "seconds,step,epoch,train_loss,train_accuracy,test_loss,test_accuracy,"
         "samples_per_second,bytes_up,bytes_down,payload_up,payload_down,ratio,"
         "voided";
}

std::string MetricsLine(const MetricsRow& row) {
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  if (row.test.has_value()) {
    test_loss = row.test->loss;
    test_accuracy = row.test->accuracy;
  }
  return absl::StrJoin(
      std::vector<std::string>{
          Number(row.seconds), absl::StrCat(row.step), Number(row.epoch),
          Number(row.train_loss), Number(row.train_accuracy), Number(test_loss),
          Number(test_accuracy), Number(row.samples_per_second),
          absl::StrCat(row.totals.bytes_up),
          absl::StrCat(row.totals.bytes_down),
          absl::StrCat(row.totals.payload_up),
          absl::StrCat(row.totals.payload_down), Number(row.ratio),
          absl::StrCat(row.voided)},
      ",");
}

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path,
                                              int64_t keep_until) {
  std::string kept = absl::StrCat(MetricsHeader(), "\n");
  if (keep_until > 0) {
    const absl::StatusOr<std::string> old = ReadTextFile(path);
    if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
    const std::string text = old.ok() ? *old : "";
    // A line without its end was cut by whatever ended the earlier part.
    const absl::string_view whole(text.data(), text.rfind('\n') + 1);
    for (absl::string_view line : absl::StrSplit(whole, '\n')) {
      const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
      int64_t step = 0;
      if (fields.size() > 1 && absl::SimpleAtoi(fields[1], &step) &&
          step <= keep_until) {
        absl::StrAppend(&kept, line, "\n");
      }
    }
  }
  RV_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  return MetricsFile(path);
}

absl::Status MetricsFile::Append(const MetricsRow& row) {
  const std::string line = absl::StrCat(MetricsLine(row), "\n");
  std::FILE* file = std::fopen(path_.c_str(), "ae");
  const bool wrote = file != nullptr && std::fwrite(line.data(), 1, line.size(),
                                                    file) == line.size();
  int error = wrote ? 0 : errno;
  if (file != nullptr && std::fclose(file) != 0 && wrote) error = errno;
  return error == 0 ? absl::OkStatus() : ErrnoToStatus(error, path_, "write");
}

}  // namespace rivulet
