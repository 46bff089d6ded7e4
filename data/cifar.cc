#include "data/cifar.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "data/pickle.h"

namespace rivulet {
namespace {

constexpr int64_t kImageBytes = 3 * 32 * 32;
constexpr int64_t kRecordBytes = 1 + kImageBytes;
// A published batch has 31 MB; its file names are what varies.
constexpr int64_t kMaxPickleBytes = int64_t{64} << 20;

struct Layout {
  const char* folder;     // below the folder of data sets
  const char* extension;  // of data_batch_1 and its like
};
constexpr Layout kBinary = {"cifar-10-batches-bin", ".bin"};
constexpr Layout kPython = {"cifar-10-batches-py", ""};

std::vector<std::string> FileNames(const Layout& layout, Split split) {
  if (split == Split::kTest) {
    return {absl::StrCat("test_batch", layout.extension)};
  }
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) {
    names.push_back(absl::StrCat("data_batch_", i, layout.extension));
  }
  return names;
}

// The folder that has the first file of the layout, or an empty string.
std::string FindFolder(const std::string& path, const Layout& layout,
                       Split split) {
  const std::string first = FileNames(layout, split).front();
  for (const std::string& folder :
       {path, absl::StrCat(path, "/", layout.folder)}) {
    if (FileExists(absl::StrCat(folder, "/", first))) return folder;
  }
  return "";
}

absl::Status CheckLabel(int64_t label, const std::string& name,
                        int64_t record) {
  if (label >= 0 && label < kCifarClasses) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      name, ": record ", record, " has label ", label, ", expected is 0..9"));
}

// Tells a file of the wrong size apart before a byte of it is used.
absl::Status CheckBinarySize(const std::string& path, int64_t records) {
  RV_ASSIGN_OR_RETURN(const int64_t found, FileSize(path));
  const int64_t expected = records * kRecordBytes;
  if (found == expected) return absl::OkStatus();
  RV_ASSIGN_OR_RETURN(auto source, OpenFile(path));
  std::string reason = LooksLikeWebPage(ReadForMessage(*source, kWebPageBytes));
  if (reason.empty() && found > 0 && found < expected) {
    reason = absl::StrCat(": cut in record ", found / kRecordBytes);
  }
  return absl::DataLossError(
      absl::StrCat(path, ": ", found, " bytes found, ", expected, " expected (",
                   records, " records of ", kRecordBytes, " bytes)", reason));
}

absl::Status AppendBinaryFile(const std::string& path, int64_t records,
                              ImageSet* images) {
  RV_RETURN_IF_ERROR(CheckBinarySize(path, records));
  RV_ASSIGN_OR_RETURN(auto source, OpenFile(path));
  return AppendCifarBinary(*source, records, images);
}

absl::Status AppendPickleFile(const std::string& path, int64_t records,
                              ImageSet* images) {
  RV_ASSIGN_OR_RETURN(const int64_t size, FileSize(path));
  if (size > kMaxPickleBytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", size, " bytes found, allowed are ", kMaxPickleBytes));
  }
  RV_ASSIGN_OR_RETURN(auto source, OpenFile(path));
  std::string bytes(static_cast<size_t>(size), '\0');
  RV_RETURN_IF_ERROR(source->Read(
      absl::MakeSpan(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()),
      "the pickle"));
  return AppendCifarPickle(bytes, path, records, images);
}

}  // namespace

ImageSet EmptyCifarSet() {
  ImageSet images;
  images.shape = {.channels = 3, .height = 32, .width = 32};
  images.num_classes = kCifarClasses;
  // Of the training pixels, as published with most training code.
  images.mean = {0.4914f, 0.4822f, 0.4465f};
  images.stddev = {0.2470f, 0.2435f, 0.2616f};
  return images;
}

absl::Status AppendCifarBinary(ByteSource& source, int64_t records,
                               ImageSet* images) {
  for (int64_t record = 0; record < records; ++record) {
    const std::string what = absl::StrCat("record ", record);
    uint8_t label = 0;
    RV_RETURN_IF_ERROR(source.Read(absl::MakeSpan(&label, 1), what));
    RV_RETURN_IF_ERROR(CheckLabel(label, source.name(), record));
    const size_t begin = images->pixels.size();
    images->pixels.resize(begin + kImageBytes);
    RV_RETURN_IF_ERROR(source.Read(
        absl::MakeSpan(images->pixels).subspan(begin, kImageBytes), what));
    images->labels.push_back(label);
  }
  return source.ExpectEnd();
}

absl::Status AppendCifarPickle(absl::string_view bytes, const std::string& name,
                               int64_t records, ImageSet* images) {
  absl::StatusOr<PickledBatch> batch = ReadPickledBatch(bytes);
  if (!batch.ok()) {
    return absl::DataLossError(
        absl::StrCat(name, ": ", batch.status().message(),
                     LooksLikeWebPage(bytes.substr(0, kWebPageBytes))));
  }
  if (batch->rows != records || batch->columns != kImageBytes) {
    return absl::DataLossError(absl::StrCat(
        name, ": data has shape [", batch->rows, ", ", batch->columns,
        "], expected is [", records, ", ", kImageBytes, "]"));
  }
  if (static_cast<int64_t>(batch->labels.size()) != records) {
    return absl::DataLossError(absl::StrCat(name, ": ", batch->labels.size(),
                                            " labels found, ", records,
                                            " expected"));
  }
  for (int64_t record = 0; record < records; ++record) {
    const int64_t label = batch->labels[static_cast<size_t>(record)];
    RV_RETURN_IF_ERROR(CheckLabel(label, name, record));
    images->labels.push_back(static_cast<uint8_t>(label));
  }
  const size_t begin = images->pixels.size();
  images->pixels.resize(begin + batch->data.size());
  uint8_t* out = images->pixels.data() + begin;
  if (!batch->column_major) {
    std::copy(batch->data.begin(), batch->data.end(), out);
    return absl::OkStatus();
  }
  for (int64_t column = 0; column < kImageBytes; ++column) {
    for (int64_t row = 0; row < records; ++row) {
      out[row * kImageBytes + column] = static_cast<uint8_t>(
          batch->data[static_cast<size_t>(column * records + row)]);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenCifar10(
    const std::string& path, Split split, int64_t records_per_file) {
  RV_RETURN_IF_ERROR(CheckDataFolder(path, "cifar10"));
  bool binary = true;
  std::string folder = FindFolder(path, kBinary, split);
  if (folder.empty()) {
    binary = false;
    folder = FindFolder(path, kPython, split);
  }
  if (folder.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no CIFAR-10 in ", path, ": looked for ",
        FileNames(kBinary, split).front(), " and ",
        FileNames(kPython, split).front(), ", there and in its folders ",
        kBinary.folder, " and ", kPython.folder));
  }
  const std::vector<std::string> names =
      FileNames(binary ? kBinary : kPython, split);
  ImageSet images = EmptyCifarSet();
  const size_t total = names.size() * static_cast<size_t>(records_per_file);
  images.pixels.reserve(total * kImageBytes);
  images.labels.reserve(total);
  for (const std::string& name : names) {
    const std::string file = absl::StrCat(folder, "/", name);
    RV_RETURN_IF_ERROR(binary
                           ? AppendBinaryFile(file, records_per_file, &images)
                           : AppendPickleFile(file, records_per_file, &images));
  }
  RV_RETURN_IF_ERROR(CheckEveryClassOccurs(images, folder));
  return std::make_shared<const InMemoryDataset>(std::move(images));
}

}  // namespace rivulet
