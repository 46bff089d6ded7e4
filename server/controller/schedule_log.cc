#include "server/controller/schedule_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/crc32c.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/text_file.h"
#include "models/checkpoint/atomic_file.h"

namespace rivulet {
namespace {

constexpr absl::string_view kMagic = "RVSCHED1";
constexpr size_t kPrefixBytes = 12;
// Far above a view of 1023 members; keeps a damaged length from being believed.
constexpr uint32_t kMaxRecordBytes = 1 << 20;

void PutFixed32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) {
    out->push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

uint32_t GetFixed32(absl::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

std::string Record(const v1::ScheduleEntry& entry) {
  const std::string payload = entry.SerializeAsString();
  std::string record;
  PutFixed32(static_cast<uint32_t>(payload.size()), &record);
  PutFixed32(Crc32c(record), &record);
  PutFixed32(Crc32c(payload), &record);
  return record + payload;
}

absl::Status WriteAt(int fd, const std::string& path, absl::string_view bytes,
                     int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoToStatus(errno, path, "write");
    bytes.remove_prefix(static_cast<size_t>(wrote));
    offset += wrote;
  }
  if (fdatasync(fd) != 0) return ErrnoToStatus(errno, path, "sync");
  return absl::OkStatus();
}

// The whole records of `bytes`; *used is where they end.
absl::StatusOr<std::vector<v1::ScheduleEntry>> Parse(const std::string& path,
                                                     absl::string_view bytes,
                                                     size_t* used) {
  std::vector<v1::ScheduleEntry> entries;
  size_t at = kMagic.size();
  while (bytes.size() - at >= kPrefixBytes) {
    const uint32_t length = GetFixed32(bytes.substr(at));
    const size_t end = at + kPrefixBytes + length;
    const auto damaged = [&](absl::string_view why) {
      return absl::DataLossError(absl::StrCat(
          path, ": record ", entries.size() + 1, " at byte ", at, ": ", why));
    };
    if (Crc32c(bytes.substr(at, 4)) != GetFixed32(bytes.substr(at + 4)) ||
        length > kMaxRecordBytes) {
      // The file grew, and what was written never came.
      if (bytes.find_first_not_of('\0', at) == bytes.npos) break;
      return damaged("impossible length");
    }
    if (end > bytes.size()) break;
    const absl::string_view payload = bytes.substr(at + kPrefixBytes, length);
    if (Crc32c(payload) != GetFixed32(bytes.substr(at + 8))) {
      if (end == bytes.size()) break;
      return damaged("wrong checksum");
    }
    v1::ScheduleEntry entry;
    if (!entry.ParseFromArray(payload.data(),
                              static_cast<int>(payload.size()))) {
      return damaged("not a schedule entry");
    }
    if (entry.seq() != entries.size() + 1) {
      return damaged(absl::StrCat("entry ", entry.seq(), " where ",
                                  entries.size() + 1, " follows"));
    }
    entries.push_back(std::move(entry));
    at = end;
  }
  *used = at;
  return entries;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScheduleLog>> ScheduleLog::Open(
    const std::string& path) {
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    // Atomic, and the name is as durable as what will be under it.
    RV_RETURN_IF_ERROR(WriteFileAtomically(path, std::string(kMagic)));
    fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  if (fd < 0) return ErrnoToStatus(errno, path, "open");
  std::unique_ptr<ScheduleLog> log(new ScheduleLog(path, fd));
  const absl::StatusOr<std::string> content = ReadToEnd(fd, path);
  if (!content.ok()) return content.status();
  const absl::string_view bytes = *content;
  if (bytes.size() < kMagic.size() && kMagic.substr(0, bytes.size()) == bytes) {
    // Cut down to no entry.
    RV_RETURN_IF_ERROR(WriteAt(fd, path, kMagic, 0));
    log->size_bytes_ = static_cast<int64_t>(kMagic.size());
    return log;
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError(absl::StrCat(path, ": not a schedule log"));
  }
  size_t used = 0;
  RV_ASSIGN_OR_RETURN(log->entries_, Parse(path, bytes, &used));
  log->size_bytes_ = static_cast<int64_t>(used);
  if (used < bytes.size() && ftruncate(fd, log->size_bytes_) != 0) {
    return ErrnoToStatus(errno, path, "cut off its damaged end");
  }
  return log;
}

ScheduleLog::~ScheduleLog() { close(fd_); }

absl::StatusOr<v1::ScheduleEntry> ScheduleLog::Append(v1::ScheduleEntry entry) {
  entry.set_seq(entries_.size() + 1);
  const std::string record = Record(entry);
  if (record.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": an entry of ", record.size(),
                     " bytes; allowed: at most ", kMaxRecordBytes));
  }
  if (absl::Status status = WriteAt(fd_, path_, record, size_bytes_);
      !status.ok()) {
    // Half a record at the end would be dropped by Open; a whole one must not
    // come to life after the caller was told that it failed.
    (void)!ftruncate(fd_, size_bytes_);
    return status;
  }
  size_bytes_ += static_cast<int64_t>(record.size());
  entries_.push_back(entry);
  return entry;
}

}  // namespace rivulet
