#include "server/controller/run_record.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/digest.h"
#include "common/daemon/text_file.h"
#include "models/checkpoint/atomic_file.h"
#include "server/controller/complete_markers.h"
#include "server/controller/progress_file.h"
#include "server/controller/summary.h"

namespace rivulet {
namespace {

uint64_t NumViews(const ScheduleLog& log) {
  uint64_t views = 0;
  for (const v1::ScheduleEntry& entry : log.entries()) {
    if (entry.has_view()) ++views;
  }
  return views;
}

absl::Status Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  return error ? ErrnoToStatus(error.value(), path, "remove")
               : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunRecord>> RunRecord::Create(
    const Config& config, const std::string& run_dir, bool resume) {
  RV_ASSIGN_OR_RETURN(std::shared_ptr<const RunPlan> plan,
                      RunPlan::Create(config));
  RV_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Create(run_dir, resume));
  std::unique_ptr<RunRecord> record(
      new RunRecord(std::move(folder), std::move(plan), resume));
  if (resume) RV_RETURN_IF_ERROR(record->TakeUp());
  return record;
}

RunRecord::RunRecord(RunFolder folder, std::shared_ptr<const RunPlan> plan,
                     bool resume)
    : folder_(std::move(folder)), plan_(std::move(plan)), resume_(resume) {}

absl::Status RunRecord::Write() { return AsRunFolderError(WriteFiles()); }

uint64_t RunRecord::generation() const {
  RV_CHECK(log_ != nullptr) << "before Write()";
  return NumViews(*log_) + 1;
}

RunCoordinator::Parts RunRecord::CoordinatorParts(SessionStreams* hub) {
  return {.plan = plan_,
          .paths = folder_.paths(),
          .job = job_,
          .generation = generation(),
          .earlier = earlier_,
          .earlier_unknown = earlier_unknown_,
          .notices = notices_,
          .hub = hub,
          .log = log_.get()};
}

absl::Status RunRecord::WriteFiles() {
  RV_RETURN_IF_ERROR(folder_.Populate());
  const RunPaths& paths = folder_.paths();
  if (!resume_) {
    // Of a run that never got to its first checkpoint.
    RV_RETURN_IF_ERROR(Remove(paths.schedule()));
    RV_RETURN_IF_ERROR(Remove(paths.progress()));
  }
  if (job_.empty()) job_ = NewJobId();
  RV_RETURN_IF_ERROR(WriteFileAtomically(paths.job(), job_ + "\n"));
  if (!keeps_config_) {
    RV_RETURN_IF_ERROR(
        WriteFileAtomically(paths.config(), ToYaml(plan_->config())));
  }
  RV_ASSIGN_OR_RETURN(log_, ScheduleLog::Open(paths.schedule()));
  return absl::OkStatus();
}

// What an earlier part of this run has left.
absl::Status RunRecord::TakeUp() {
  const RunPaths& paths = folder_.paths();
  const auto read = [](const std::string& path) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> text = ReadTextFile(path);
    if (absl::IsNotFound(text.status())) return std::string();
    if (!text.ok()) return AsRunFolderError(text.status());
    return text;
  };
  RV_ASSIGN_OR_RETURN(const std::string summary, read(paths.summary()));
  if (StatusOfSummary(summary) == "complete") {
    return absl::AlreadyExistsError(absl::StrCat(
        paths.dir(),
        ": the run in this folder is complete; nothing is left to resume"));
  }
  RV_ASSIGN_OR_RETURN(const std::string yaml, read(paths.config()));
  if (!yaml.empty()) {
    RV_ASSIGN_OR_RETURN(const Config old,
                        ParseConfig(yaml, paths.config(), {}));
    const std::string differences = DescribeDifferences(
        paths.config(), CanonicalConfig(old, /*for_resume=*/true), "this start",
        CanonicalConfig(plan_->config(), /*for_resume=*/true));
    if (!differences.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          paths.dir(),
          ": the run in this folder has another config: ", differences,
          "; only keys marked resumable or local may change on --resume"));
    }
  }
  RV_ASSIGN_OR_RETURN(const std::string job, read(paths.job()));
  job_ = std::string(absl::StripAsciiWhitespace(job));
  // A new identity would lock everybody out who has a checkpoint.
  RV_ASSIGN_OR_RETURN(const bool has_begun, HasCompleteCheckpoint(paths));
  // Whether this config is the checkpoints' is for their owners to say first.
  keeps_config_ = yaml.empty() && has_begun;
  if (has_begun && job.empty()) {
    return absl::DataLossError(absl::StrCat(
        paths.job(),
        ": missing or empty, but there are checkpoints; expected the job's "
        "identity, as the metadata of any of them has it under \"job\""));
  }
  if (!job.empty() && !IsJobId(job_)) {
    return absl::DataLossError(absl::StrCat(
        paths.job(), ": found ", job.size(),
        " bytes that are not a job's identity; expected 32 hexadecimal digits, "
        "as the metadata of any checkpoint has them under \"job\""));
  }
  RV_ASSIGN_OR_RETURN(const std::string progress, read(paths.progress()));
  if (progress.empty() && has_begun) {
    earlier_unknown_ = true;
    notices_.push_back(absl::StrCat(
        paths.progress(),
        " is missing: the traffic and the time of what is done already are not "
        "known; traffic, and what dense training would take, count from here"));
    spdlog::warn("{}", notices_.back());
  }
  if (!progress.empty()) {
    RV_ASSIGN_OR_RETURN(earlier_,
                        ParseProgressJson(paths.progress(), progress));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
