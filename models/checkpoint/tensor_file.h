// Named tensors in a file: the safetensors format (8 bytes of header length,
// JSON header, raw little-endian data), which PyTorch's tools open. Used for
// exported weights and, with kinds of metadata of our own, for checkpoints.
//
// Writing is atomic: a temporary file beside the target, fsync, rename, fsync
// of the folder. Reading checks everything before it returns anything. Only
// dtype F32 is supported.
//
//   RV_RETURN_IF_ERROR(WriteTensorFile(path, file));
//   RV_ASSIGN_OR_RETURN(TensorFile same, ReadTensorFile(path));
//
// Plain functions without state: thread-safe.

#ifndef RIVULET_MODELS_CHECKPOINT_TENSOR_FILE_H_
#define RIVULET_MODELS_CHECKPOINT_TENSOR_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rivulet {

struct NamedTensor {
  std::string name = {};
  std::vector<int64_t> shape = {};
  std::vector<float> values = {};  // row major; product(shape) of them
};

struct TensorFile {
  std::vector<NamedTensor> tensors = {};  // in file order
  // safetensors' __metadata__.
  std::map<std::string, std::string> metadata = {};

  // Null when there is none of that name.
  const NamedTensor* Find(const std::string& name) const;
};

// Checks that shapes match sizes and names are unique (InvalidArgument); errors
// of the file system name path and errno. The metadata key "crc32c" is added:
// CRC32Cs in hexadecimal, of names, shapes and other metadata first, then of
// each tensor's bytes. Bytes depend on the contents alone.
absl::Status WriteTensorFile(const std::string& path, const TensorFile& file);

// NotFound, or DataLoss naming path, what was expected and what was found: a
// cut header or data, trailing bytes, a header length beyond the file,
// overlapping or out-of-range offsets, an unsupported dtype, a wrong checksum.
// Files without checksums, as other programs write them, are taken too;
// "crc32c" is not among the metadata returned.
absl::StatusOr<TensorFile> ReadTensorFile(const std::string& path);

// As ReadTensorFile, from the bytes of a file; `name` is used in messages.
absl::StatusOr<TensorFile> ParseTensorFile(absl::string_view bytes,
                                           const std::string& name);

}  // namespace rivulet

#endif  // RIVULET_MODELS_CHECKPOINT_TENSOR_FILE_H_
