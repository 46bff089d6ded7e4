#include "data/byte_source.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

// With errno. NotFound whatever the reason: to its reader a data file that may
// not be opened is missing.
absl::Status CannotOpen(const std::string& path, int error) {
  return absl::NotFoundError(ErrnoMessage(error, path, "open"));
}

// zlib's gzread passes plain files through unchanged.
class FileSource : public ByteSource {
 public:
  FileSource(gzFile file, std::string path)
      : file_(file), path_(std::move(path)) {}
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  // The file was only read: nothing can be lost by closing it.
  ~FileSource() override { gzclose(file_); }

  absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> bytes) override {
    size_t done = 0;
    while (done < bytes.size()) {
      const unsigned chunk =
          static_cast<unsigned>(std::min(bytes.size() - done, size_t{1} << 28));
      const int got = gzread(file_, bytes.data() + done, chunk);
      if (got < 0) return Damaged();
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    if (done < bytes.size()) {
      // A gzip file that was cut ends like a whole one but for its error code.
      int code = Z_OK;
      gzerror(file_, &code);
      if (code != Z_OK && code != Z_STREAM_END) return Damaged();
    }
    return done;
  }

  const std::string& name() const override { return path_; }

 private:
  absl::Status Damaged() const {
    int code = Z_OK;
    const std::string reason = gzerror(file_, &code);
    if (code == Z_ERRNO) {
      return ErrnoToStatus(errno, path_, "read");
    }
    if (code == Z_BUF_ERROR) {
      return absl::DataLossError(
          absl::StrCat(path_, ": cut gzip data: it ends after ", position(),
                       " unpacked bytes were read"));
    }
    return absl::DataLossError(absl::StrCat(path_, ": damaged gzip data after ",
                                            position(),
                                            " unpacked bytes: ", reason));
  }

  const gzFile file_;
  const std::string path_;
};

class MemorySource : public ByteSource {
 public:
  MemorySource(absl::string_view bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> bytes) override {
    const size_t done = std::min(bytes.size(), bytes_.size());
    std::copy_n(bytes_.data(), done, bytes.data());
    bytes_.remove_prefix(done);
    return done;
  }

  const std::string& name() const override { return name_; }

 private:
  absl::string_view bytes_;
  const std::string name_;
};

}  // namespace

absl::Status ByteSource::Read(absl::Span<uint8_t> bytes,
                              absl::string_view what) {
  RV_ASSIGN_OR_RETURN(const size_t got, ReadSome(bytes));
  const int64_t begin = position_;
  position_ += static_cast<int64_t>(got);
  if (got == bytes.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(name(), ": cut in ", what, ": ", bytes.size(),
                   " bytes expected at byte ", begin, ", ", got, " found"));
}

absl::Status ByteSource::ExpectEnd() {
  uint8_t extra = 0;
  RV_ASSIGN_OR_RETURN(const size_t got, ReadSome(absl::MakeSpan(&extra, 1)));
  if (got == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name(), ": more bytes after the ",
                                          position_, " that were expected"));
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path) {
  // zlib opens a folder without complaint and fails at the first read.
  RV_RETURN_IF_ERROR(FileSize(path).status());
  errno = 0;
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return CannotOpen(path, errno == 0 ? ENOMEM : errno);
  }
  gzbuffer(file, 1 << 17);  // may only fail after a read
  return std::make_unique<FileSource>(file, path);
}

std::unique_ptr<ByteSource> OpenMemory(absl::string_view bytes,
                                       std::string name) {
  return std::make_unique<MemorySource>(bytes, std::move(name));
}

absl::StatusOr<int64_t> FileSize(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return CannotOpen(path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat(path, " is not a file"));
  }
  return static_cast<int64_t>(info.st_size);
}

bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::Status CheckDataFolder(const std::string& path, const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  return absl::NotFoundError(
      FileExists(path)
          ? absl::StrCat(path, " for the data set ", name, " is not a folder")
          : absl::StrCat("no folder ", path, " for the data set ", name));
}

std::string ReadForMessage(ByteSource& source, size_t size) {
  std::string bytes(size, '\0');
  const absl::StatusOr<size_t> got = source.ReadSome(
      absl::MakeSpan(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()));
  bytes.resize(got.ok() ? *got : 0);
  return bytes;
}

std::string LooksLikeWebPage(absl::string_view first_bytes) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(first_bytes);
  if (absl::StartsWithIgnoreCase(text, "<!doctype") ||
      absl::StartsWithIgnoreCase(text, "<html") ||
      absl::StartsWithIgnoreCase(text, "<?xml")) {
    return ", and it looks like a web page";
  }
  return "";
}

}  // namespace rivulet
