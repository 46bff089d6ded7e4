#include "data/idx.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

constexpr IdxSet kSets[] = {
    {.name = "fashion_mnist",
     .folder = "FashionMNIST",
     .mean = 0.2860f,
     .stddev = 0.3530f,
     .train_images = 60000,
     .test_images = 10000},
    {.name = "mnist",
     .folder = "MNIST",
     .mean = 0.1307f,
     .stddev = 0.3081f,
     .train_images = 60000,
     .test_images = 10000},
};

uint32_t BigEndian32(absl::Span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

// Reads magic number and dimensions, and compares them with those expected.
absl::Status ReadHeader(ByteSource& source, absl::Span<const int64_t> expected,
                        absl::string_view what) {
  uint8_t word[4] = {};
  RV_RETURN_IF_ERROR(source.Read(absl::MakeSpan(word), "the header"));
  const uint32_t magic = BigEndian32(word);
  const uint32_t expected_magic =
      0x800u | static_cast<uint32_t>(expected.size());
  if (magic != expected_magic) {
    const std::string start =
        std::string(word, word + sizeof(word)) +
        ReadForMessage(source, kWebPageBytes - sizeof(word));
    return absl::DataLossError(absl::StrFormat(
        "%s: it begins with 0x%08x, an idx file of %s begins with 0x%08x%s",
        source.name(), magic, std::string(what), expected_magic,
        LooksLikeWebPage(start)));
  }
  for (size_t d = 0; d < expected.size(); ++d) {
    RV_RETURN_IF_ERROR(source.Read(absl::MakeSpan(word), "the header"));
    const int64_t found = BigEndian32(word);
    if (found != expected[d]) {
      return absl::DataLossError(absl::StrCat(source.name(), ": dimension ", d,
                                              " of the ", what, " is ", found,
                                              ", expected is ", expected[d]));
    }
  }
  return absl::OkStatus();
}

// The plain file before the packed one, `path` before torchvision's folder.
absl::StatusOr<std::string> FindFile(const IdxSet& set, const std::string& path,
                                     const std::string& file) {
  for (const std::string& folder :
       {path, absl::StrCat(path, "/", set.folder, "/raw")}) {
    for (const char* extension : {"", ".gz"}) {
      std::string candidate = absl::StrCat(folder, "/", file, extension);
      if (FileExists(candidate)) return candidate;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no ", file, " or ", file, ".gz for the data set ", set.name,
                   " in ", path, " or its folder ", set.folder, "/raw"));
}

}  // namespace

const IdxSet* FindIdxSet(const std::string& name) {
  for (const IdxSet& set : kSets) {
    if (name == set.name) return &set;
  }
  return nullptr;
}

absl::Status ReadIdxImages(ByteSource& source, int64_t count,
                           ImageSet* images) {
  RV_RETURN_IF_ERROR(
      ReadHeader(source, {count, kIdxShape.height, kIdxShape.width}, "images"));
  const size_t image_size = static_cast<size_t>(kIdxShape.size());
  for (int64_t record = 0; record < count; ++record) {
    const size_t begin = images->pixels.size();
    images->pixels.resize(begin + image_size);
    RV_RETURN_IF_ERROR(
        source.Read(absl::MakeSpan(images->pixels).subspan(begin, image_size),
                    absl::StrCat("record ", record)));
  }
  return source.ExpectEnd();
}

absl::Status ReadIdxLabels(ByteSource& source, int64_t count,
                           ImageSet* images) {
  RV_RETURN_IF_ERROR(ReadHeader(source, {count}, "labels"));
  for (int64_t record = 0; record < count; ++record) {
    uint8_t label = 0;
    RV_RETURN_IF_ERROR(source.Read(absl::MakeSpan(&label, 1),
                                   absl::StrCat("record ", record)));
    if (label >= kIdxClasses) {
      return absl::DataLossError(absl::StrCat(source.name(), ": record ",
                                              record, " has label ", label,
                                              ", expected is 0..9"));
    }
    images->labels.push_back(label);
  }
  return source.ExpectEnd();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const IdxSet& set,
                                                       const std::string& path,
                                                       Split split) {
  RV_RETURN_IF_ERROR(CheckDataFolder(path, set.name));
  const bool train = split == Split::kTrain;
  const std::string prefix = train ? "train" : "t10k";
  const int64_t count = train ? set.train_images : set.test_images;
  RV_ASSIGN_OR_RETURN(
      const std::string image_file,
      FindFile(set, path, absl::StrCat(prefix, "-images-idx3-ubyte")));
  RV_ASSIGN_OR_RETURN(
      const std::string label_file,
      FindFile(set, path, absl::StrCat(prefix, "-labels-idx1-ubyte")));

  ImageSet images;
  images.shape = kIdxShape;
  images.num_classes = kIdxClasses;
  images.mean = {set.mean};
  images.stddev = {set.stddev};
  images.pixels.reserve(static_cast<size_t>(count * kIdxShape.size()));
  images.labels.reserve(static_cast<size_t>(count));
  RV_ASSIGN_OR_RETURN(auto image_source, OpenFile(image_file));
  RV_RETURN_IF_ERROR(ReadIdxImages(*image_source, count, &images));
  RV_ASSIGN_OR_RETURN(auto label_source, OpenFile(label_file));
  RV_RETURN_IF_ERROR(ReadIdxLabels(*label_source, count, &images));
  RV_RETURN_IF_ERROR(CheckEveryClassOccurs(images, label_file));
  return std::make_shared<const InMemoryDataset>(std::move(images));
}

}  // namespace rivulet
