// Where the readers of data files take their bytes from: a file, plain or
// gzipped, or memory. Readers see one forward stream, so the same code reads a
// compressed file, a plain one and a fuzzer's input.
//
//   RV_ASSIGN_OR_RETURN(auto source, OpenFile(path));
//   RV_RETURN_IF_ERROR(source->Read(absl::MakeSpan(header)));
//
// Thread-compatible.

#ifndef RIVULET_DATA_BYTE_SOURCE_H_
#define RIVULET_DATA_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rivulet {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `bytes` as far as the source reaches and returns how many were read:
  // fewer than asked only at the end. DataLoss for a damaged file.
  virtual absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> bytes) = 0;

  // What messages call this source: a path.
  virtual const std::string& name() const = 0;

  // Fills `bytes` whole. DataLoss naming the source, the position, and how many
  // bytes of `what` ("record 17") were there.
  absl::Status Read(absl::Span<uint8_t> bytes, absl::string_view what);

  // DataLoss when anything is left.
  absl::Status ExpectEnd();

  int64_t position() const { return position_; }  // bytes read so far

 private:
  int64_t position_ = 0;
};

// Opens a file, unpacking it when it begins as gzip does. NotFound naming the
// path when there is none; otherwise the system's error.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);

// Bytes in memory, which must outlive the source.
std::unique_ptr<ByteSource> OpenMemory(absl::string_view bytes,
                                       std::string name);

// Size of a file as it lies on the disk. NotFound naming the path.
absl::StatusOr<int64_t> FileSize(const std::string& path);

// Whether there is something of this name; what cannot be looked at is not
// there.
bool FileExists(const std::string& path);

// NotFound naming both when `path`, where data set `name` is looked for, does
// not exist or is no folder.
absl::Status CheckDataFolder(const std::string& path, const std::string& name);

// Up to `size` bytes more, to tell from them what a damaged source may be;
// fewer where it ends or cannot be read on.
std::string ReadForMessage(ByteSource& source, size_t size);

// So many first bytes are enough for LooksLikeWebPage.
inline constexpr size_t kWebPageBytes = 64;
// ", and it looks like a web page" when the bytes begin as HTML does, otherwise
// empty: the usual fate of a download that was refused.
std::string LooksLikeWebPage(absl::string_view first_bytes);

}  // namespace rivulet

#endif  // RIVULET_DATA_BYTE_SOURCE_H_
