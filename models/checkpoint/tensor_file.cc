#include "models/checkpoint/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "models/checkpoint/atomic_file.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kAlignment = 8;
// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr char kMetadataKey[] = "__metadata__";
constexpr char kChecksumKey[] = "crc32c";

absl::string_view BytesOf(const NamedTensor& tensor) {
  return absl::string_view(reinterpret_cast<const char*>(tensor.values.data()),
                           tensor.values.size() * sizeof(float));
}

// Product of the dimensions, or nothing where it is negative or overflows.
std::optional<uint64_t> ElementsOf(absl::Span<const int64_t> shape) {
  uint64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    const uint64_t factor = static_cast<uint64_t>(dimension);
    if (factor != 0 &&
        elements > std::numeric_limits<int64_t>::max() / factor) {
      return std::nullopt;
    }
    elements *= factor;
  }
  return elements;
}

// The header's checksum: of all that is not a tensor's values.
uint32_t DescriptionCrc(const TensorFile& file) {
  std::string text;
  for (const auto& [key, value] : file.metadata) {
    absl::StrAppend(&text, "m ", absl::CEscape(key), " ", absl::CEscape(value),
                    "\n");
  }
  for (const NamedTensor& tensor : file.tensors) {
    absl::StrAppend(&text, "t ", absl::CEscape(tensor.name), " ",
                    absl::StrJoin(tensor.shape, ","), "\n");
  }
  return Crc32c(text);
}

std::string HexCrc(uint32_t crc) { return absl::StrFormat("%08x", crc); }

// The header's checksum and each tensor's, in file order.
std::string Checksums(const TensorFile& file) {
  std::vector<std::string> all = {HexCrc(DescriptionCrc(file))};
  for (const NamedTensor& tensor : file.tensors) {
    all.push_back(HexCrc(Crc32c(BytesOf(tensor))));
  }
  return absl::StrJoin(all, " ");
}

absl::Status CheckWritable(const TensorFile& file) {
  std::set<std::string> names = {kMetadataKey};
  for (const NamedTensor& tensor : file.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", absl::CEscape(tensor.name), "\" has a name that is ",
          tensor.name == kMetadataKey ? "reserved" : "not unique"));
    }
    const std::optional<uint64_t> elements = ElementsOf(tensor.shape);
    if (!elements.has_value() || *elements != tensor.values.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", absl::CEscape(tensor.name),
                       "\" has shape [", absl::StrJoin(tensor.shape, ", "),
                       "] and ", tensor.values.size(), " values"));
    }
  }
  if (file.metadata.count(kChecksumKey) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the metadata key \"", kChecksumKey, "\" is reserved"));
  }
  return absl::OkStatus();
}

// The length and the padded JSON text.
absl::StatusOr<std::string> EncodeHeader(const TensorFile& file) {
  OrderedJson header = OrderedJson::object();
  OrderedJson metadata(file.metadata);
  metadata[kChecksumKey] = Checksums(file);
  header[kMetadataKey] = std::move(metadata);
  uint64_t offset = 0;
  for (const NamedTensor& tensor : file.tensors) {
    const uint64_t end = offset + BytesOf(tensor).size();
    OrderedJson entry;
    entry["dtype"] = "F32";
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, end};
    header[tensor.name] = std::move(entry);
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError(
        "a tensor's name or a metadata text is not valid UTF-8");
  }
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header has ", text.size(), " bytes, allowed are ",
                     kMaxHeaderBytes));
  }
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  }
  return bytes + text;
}

// Fills the span from an offset of the file; the whole range exists.
using ReadAt = std::function<absl::Status(uint64_t, absl::Span<char>)>;

// Checks and reads one file of `size` bytes. Memory is bounded by the size:
// nothing is allocated for what the file does not hold.
class Reader {
 public:
  Reader(std::string name, uint64_t size, ReadAt read_at)
      : name_(std::move(name)), size_(size), read_at_(std::move(read_at)) {}

  absl::StatusOr<TensorFile> Read() {
    RV_ASSIGN_OR_RETURN(const Json header, ReadHeader());
    for (const auto& [key, value] : header.items()) {
      RV_RETURN_IF_ERROR(key == kMetadataKey ? AddMetadata(value)
                                             : AddTensor(key, value));
    }
    RV_RETURN_IF_ERROR(CheckOffsets());
    for (const Entry& entry : entries_) {
      NamedTensor tensor{
          .name = entry.name, .shape = entry.shape, .values = {}};
      tensor.values.resize((entry.end - entry.begin) / sizeof(float));
      RV_RETURN_IF_ERROR(
          read_at_(data_begin_ + entry.begin,
                   absl::MakeSpan(reinterpret_cast<char*>(tensor.values.data()),
                                  entry.end - entry.begin)));
      file_.tensors.push_back(std::move(tensor));
    }
    RV_RETURN_IF_ERROR(CheckChecksums());
    return std::move(file_);
  }

 private:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // within the data
    uint64_t end = 0;
    size_t order = 0;  // in the header; decides among empty tensors
  };

  absl::Status Error(absl::string_view reason) const {
    return absl::DataLossError(absl::StrCat(name_, ": ", reason));
  }

  absl::Status TensorError(const std::string& tensor,
                           absl::string_view reason) const {
    return Error(
        absl::StrCat("tensor \"", absl::CEscape(tensor), "\" ", reason));
  }

  absl::StatusOr<Json> ReadHeader() {
    if (size_ < kLengthBytes) {
      return Error(absl::StrCat("cut: ", size_, " bytes found, expected are ",
                                kLengthBytes, " of header length and more"));
    }
    unsigned char word[kLengthBytes];
    RV_RETURN_IF_ERROR(read_at_(
        0, absl::MakeSpan(reinterpret_cast<char*>(word), kLengthBytes)));
    uint64_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= uint64_t{word[i]} << (8 * i);
    }
    if (length > size_ - kLengthBytes) {
      return Error(absl::StrCat("cut, or not a safetensors file: a header of ",
                                length, " bytes expected, ",
                                size_ - kLengthBytes, " bytes follow"));
    }
    if (length > kMaxHeaderBytes) {
      return Error(absl::StrCat("a header of ", length,
                                " bytes found, allowed are ", kMaxHeaderBytes));
    }
    data_begin_ = kLengthBytes + length;
    std::string text(length, '\0');
    RV_RETURN_IF_ERROR(read_at_(kLengthBytes, absl::MakeSpan(text)));
    return ParseJson(text);
  }

  // JSON keeps the last of several equal keys; here they are an error. The
  // order of the outermost ones is noted, since Json sorts them.
  absl::StatusOr<Json> ParseJson(const std::string& text) {
    if (text.empty() || text[0] != '{') {
      return Error("the header does not begin with '{'");
    }
    std::vector<std::set<std::string>> keys;
    std::string duplicate;
    bool too_deep = false;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
      // A header has 3 levels; writing a value into a message is recursive.
      if (depth > 8) too_deep = true;
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key) {
        const std::string& key = value.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) duplicate = key;
        if (keys.size() == 1) order_.emplace(key, order_.size());
      }
      return true;
    };
    Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
    if (header.is_discarded() || !header.is_object()) {
      return Error("the header is not a JSON object");
    }
    if (too_deep) return Error("the header is nested too deeply");
    if (!duplicate.empty()) {
      return Error(absl::StrCat("the header has the key \"",
                                absl::CEscape(duplicate), "\" twice"));
    }
    return header;
  }

  absl::Status AddMetadata(const Json& value) {
    if (!value.is_object()) {
      return Error(absl::StrCat(kMetadataKey, " is not a JSON object"));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        return Error(absl::StrCat(kMetadataKey, " \"", absl::CEscape(key),
                                  "\" is not a text"));
      }
      file_.metadata[key] = text.get<std::string>();
    }
    return absl::OkStatus();
  }

  // A list of numbers of 0 or more, all representable.
  static bool ReadNumbers(const Json& value, std::vector<int64_t>* numbers) {
    if (!value.is_array()) return false;
    for (const Json& number : value) {
      if (!number.is_number_unsigned() ||
          number.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
        return false;
      }
      numbers->push_back(static_cast<int64_t>(number.get<uint64_t>()));
    }
    return true;
  }

  absl::Status AddTensor(const std::string& name, const Json& value) {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
        !value.contains("shape") || !value.contains("data_offsets")) {
      return TensorError(name, "has not just dtype, shape and data_offsets");
    }
    if (value["dtype"] != "F32") {
      return TensorError(name, absl::StrCat("has dtype ", Shown(value["dtype"]),
                                            ", supported is \"F32\""));
    }
    Entry entry{.name = name, .shape = {}};
    std::vector<int64_t> offsets;
    if (!ReadNumbers(value["shape"], &entry.shape)) {
      return TensorError(
          name, absl::StrCat("has shape ", Shown(value["shape"]),
                             ", expected is a list of numbers of 0 or more"));
    }
    if (!ReadNumbers(value["data_offsets"], &offsets) || offsets.size() != 2 ||
        offsets[0] > offsets[1]) {
      return TensorError(
          name, absl::StrCat("has data_offsets ", Shown(value["data_offsets"]),
                             ", expected are two rising numbers"));
    }
    entry.begin = static_cast<uint64_t>(offsets[0]);
    entry.end = static_cast<uint64_t>(offsets[1]);
    const std::optional<uint64_t> elements = ElementsOf(entry.shape);
    const uint64_t bytes = entry.end - entry.begin;
    if (!elements.has_value() || bytes % sizeof(float) != 0 ||
        bytes / sizeof(float) != *elements) {
      return TensorError(
          name,
          absl::StrCat("has ", bytes, " bytes, which do not fit its shape [",
                       absl::StrJoin(entry.shape, ", "), "]"));
    }
    entry.order = order_.at(name);
    entries_.push_back(std::move(entry));
    return absl::OkStatus();
  }

  // A JSON value for a message.
  static std::string Shown(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace)
        .substr(0, 80);
  }

  // The tensors must cover the data from its first byte to its last, once each.
  absl::Status CheckOffsets() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) {
                return std::tie(a.begin, a.end, a.order) <
                       std::tie(b.begin, b.end, b.order);
              });
    uint64_t expected = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin != expected) {
        return TensorError(
            entry.name,
            absl::StrCat("begins at byte ", entry.begin, " of the data, ",
                         expected, " expected: ",
                         entry.begin < expected ? "overlapping" : "a hole"));
      }
      expected = entry.end;
    }
    const uint64_t found = size_ - data_begin_;
    if (found == expected) return absl::OkStatus();
    return Error(
        absl::StrCat(found < expected ? "cut: " : "trailing bytes: ", expected,
                     " bytes of data expected, ", found, " found (file size ",
                     data_begin_ + expected, " expected, ", size_, " found)"));
  }

  // A file of another program has none. What is checked is taken away.
  absl::Status CheckChecksums() {
    const auto entry = file_.metadata.find(kChecksumKey);
    if (entry == file_.metadata.end()) return absl::OkStatus();
    const std::vector<std::string> expected =
        absl::StrSplit(entry->second, ' ');
    file_.metadata.erase(entry);
    if (expected.size() != file_.tensors.size() + 1) {
      return Error(absl::StrCat(expected.size(), " checksums found, ",
                                file_.tensors.size() + 1, " expected"));
    }
    if (const std::string found = HexCrc(DescriptionCrc(file_));
        found != expected[0]) {
      return Error(absl::StrCat("the header's checksum is ", found, ", ",
                                absl::CEscape(expected[0]), " expected"));
    }
    for (size_t i = 0; i < file_.tensors.size(); ++i) {
      const std::string found = HexCrc(Crc32c(BytesOf(file_.tensors[i])));
      if (found == expected[i + 1]) continue;
      return TensorError(
          file_.tensors[i].name,
          absl::StrCat("has checksum ", found, ", ",
                       absl::CEscape(expected[i + 1]), " expected"));
    }
    return absl::OkStatus();
  }

  const std::string name_;
  const uint64_t size_;
  const ReadAt read_at_;
  uint64_t data_begin_ = 0;
  std::map<std::string, size_t> order_;  // of the header's keys
  std::vector<Entry> entries_;
  TensorFile file_;
};

// An open file; closed on destruction.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::Status ReadFully(int descriptor, const std::string& path, uint64_t offset,
                       absl::Span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = pread(descriptor, bytes.data(), bytes.size(),
                              static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return ErrnoToStatus(errno, path, "read");
    }
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": it became shorter while it was read, ",
                       bytes.size(), " bytes at ", offset, " are missing"));
    }
    offset += static_cast<uint64_t>(got);
    bytes.remove_prefix(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

}  // namespace

const NamedTensor* TensorFile::Find(const std::string& name) const {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::Status WriteTensorFile(const std::string& path, const TensorFile& file) {
  RV_RETURN_IF_ERROR(Annotate(CheckWritable(file), path));
  absl::StatusOr<std::string> header = EncodeHeader(file);
  RV_RETURN_IF_ERROR(Annotate(header.status(), path));
  RV_ASSIGN_OR_RETURN(const auto out, AtomicFile::Create(path));
  RV_RETURN_IF_ERROR(out->Append(*header));
  for (const NamedTensor& tensor : file.tensors) {
    RV_RETURN_IF_ERROR(out->Append(BytesOf(tensor)));
  }
  return out->Commit();
}

absl::StatusOr<TensorFile> ReadTensorFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return ErrnoToStatus(errno, path, "open");
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat(path, " is not a file"));
  }
  return Reader(path, static_cast<uint64_t>(info.st_size),
                [&](uint64_t offset, absl::Span<char> bytes) {
                  return ReadFully(file.get(), path, offset, bytes);
                })
      .Read();
}

absl::StatusOr<TensorFile> ParseTensorFile(absl::string_view bytes,
                                           const std::string& name) {
  return Reader(name, bytes.size(),
                [&](uint64_t offset, absl::Span<char> out) {
                  std::copy_n(bytes.data() + offset, out.size(), out.data());
                  return absl::OkStatus();
                })
      .Read();
}

}  // namespace rivulet
