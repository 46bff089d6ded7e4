// The log of all that changes during a run, kept on disk before any daemon sees
// it. Entries are numbered from 1 without gaps.
//
// The file: 8 bytes "RVSCHED1", then records of
//   u32 length | u32 CRC32C of the length | u32 CRC32C of the payload |
//   payload (a serialized ScheduleEntry)
// little-endian. A record that is cut or damaged at the end of the file, or is
// all zeros to it, is an append that never finished: nobody has seen it, so
// opening drops it. Damage before the end is DataLoss.
//
// Thread-compatible.

#ifndef RIVULET_SERVER_CONTROLLER_SCHEDULE_LOG_H_
#define RIVULET_SERVER_CONTROLLER_SCHEDULE_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/controller.pb.h"

namespace rivulet {

class ScheduleLog {
 public:
  // Opens or makes the file, durably. PermissionDenied or Unavailable name path
  // and errno; DataLoss path and record.
  static absl::StatusOr<std::unique_ptr<ScheduleLog>> Open(
      const std::string& path);
  ~ScheduleLog();
  ScheduleLog(const ScheduleLog&) = delete;
  ScheduleLog& operator=(const ScheduleLog&) = delete;

  // Gives `entry` the next number and returns it once it is on the disk. An
  // error leaves the log as it was; InvalidArgument for an entry above 1 MiB.
  absl::StatusOr<v1::ScheduleEntry> Append(v1::ScheduleEntry entry);

  const std::vector<v1::ScheduleEntry>& entries() const { return entries_; }

 private:
  ScheduleLog(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  int64_t size_bytes_ = 0;
  std::vector<v1::ScheduleEntry> entries_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_SCHEDULE_LOG_H_
