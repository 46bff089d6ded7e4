#include "common/daemon/exit_codes.h"

#include <iostream>

namespace rivulet {

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return kExitData;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
      return kExitRunFolder;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

absl::StatusCode StatusCodeOfExit(int exit_code) {
  switch (exit_code) {
    case kExitOk:
      return absl::StatusCode::kOk;
    case kExitUsage:
      return absl::StatusCode::kInvalidArgument;
    case kExitData:
      return absl::StatusCode::kNotFound;
    case kExitUnavailable:
      return absl::StatusCode::kUnavailable;
    case kExitRunFolder:
      return absl::StatusCode::kAlreadyExists;
    case kExitInterrupted:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kInternal;
  }
}

int ReportEnd(const std::string& program, const absl::Status& status) {
  if (!status.ok()) {
    std::cerr << program << (absl::IsCancelled(status) ? ": " : ": error: ")
              << status.message() << "\n";
  }
  return ExitCodeFor(status);
}

}  // namespace rivulet
