// Named tensors in a file: the safetensors format (8 bytes of header length,
// JSON header, raw little-endian data), which PyTorch's tools open. Used for
// exported weights and, with kinds of metadata of our own, for checkpoints.
//
// Writing is atomic: a temporary file beside the target, fsync, rename, fsync of
// the folder. Reading checks everything before it returns anything.

#ifndef RIVULET_MODELS_CHECKPOINT_TENSOR_FILE_H_
#define RIVULET_MODELS_CHECKPOINT_TENSOR_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rivulet {

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;  // row major; product(shape) of them
};

struct TensorFile {
  std::vector<NamedTensor> tensors;             // in file order
  std::map<std::string, std::string> metadata;  // safetensors' __metadata__

  // Null when there is none of that name.
  const NamedTensor* Find(const std::string& name) const;
};

// Checks that shapes match sizes and names are unique (InvalidArgument); errors
// of the file system name path and errno. Every tensor's CRC32C goes into the
// metadata under "crc32c". Bytes depend on the contents alone.
absl::Status WriteTensorFile(const std::string& path, const TensorFile& file);

// NotFound, or DataLoss naming path, what was expected and what was found: a cut
// header or data, trailing bytes, a header length beyond the file, overlapping
// or out-of-range offsets, an unsupported dtype, a wrong checksum.
absl::StatusOr<TensorFile> ReadTensorFile(const std::string& path);

// Atomically replaces `path` by `bytes` (same steps as above).
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& bytes);

}  // namespace rivulet

#endif  // RIVULET_MODELS_CHECKPOINT_TENSOR_FILE_H_
