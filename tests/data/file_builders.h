// Data files of any size, made by hand from their formats' descriptions.

#ifndef RIVULET_TESTS_DATA_FILE_BUILDERS_H_
#define RIVULET_TESTS_DATA_FILE_BUILDERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rivulet::testing {

inline constexpr int64_t kCifarImageBytes = 3072;

// Pixel `i` of record `record` of a test file.
inline char PixelOf(int64_t record, int64_t i) {
  return static_cast<char>(record * 31 + i * 7 + i / 256);
}

inline std::string Pixels(int64_t record, int64_t count) {
  std::string pixels;
  for (int64_t i = 0; i < count; ++i) pixels.push_back(PixelOf(record, i));
  return pixels;
}

// Record r has label (r + shift) % 10.
inline std::string CifarBinary(int64_t records, int64_t shift = 0) {
  std::string bytes;
  for (int64_t r = 0; r < records; ++r) {
    bytes.push_back(static_cast<char>((r + shift) % 10));
    bytes += Pixels(r + shift, kCifarImageBytes);
  }
  return bytes;
}

inline std::string BigEndian32(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

inline std::string IdxImages(uint32_t count, uint32_t side = 28) {
  std::string bytes = absl::StrCat(BigEndian32(0x803), BigEndian32(count),
                                   BigEndian32(side), BigEndian32(side));
  for (uint32_t r = 0; r < count; ++r) {
    bytes += Pixels(r, int64_t{side} * side);
  }
  return bytes;
}

inline std::string IdxLabels(uint32_t count) {
  std::string bytes = absl::StrCat(BigEndian32(0x801), BigEndian32(count));
  for (uint32_t r = 0; r < count; ++r) {
    bytes.push_back(static_cast<char>(r % 10));
  }
  return bytes;
}

inline std::string LittleEndian(uint32_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

// A literal with the zeros in it.
template <size_t kSize>
absl::string_view Raw(const char (&literal)[kSize]) {
  return absl::string_view(literal, kSize - 1);
}

// What a test file of the Python layout holds.
struct PickleContents {
  std::vector<int> labels;
  int rows = 0;
  int columns = 0;
  bool column_major = false;
  std::string data;  // rows * columns bytes
};

// The instructions that Python 2's pickle wrote for a CIFAR-10 batch with
// protocol 2: {"batch_label", "labels", "data", "filenames"}.
inline std::string CifarPickle(const PickleContents& contents) {
  const auto text = [](absl::string_view s) {
    return absl::StrCat("U", LittleEndian(static_cast<uint32_t>(s.size()), 1),
                        s);
  };
  const auto number = [](int n) {
    return absl::StrCat("M", LittleEndian(static_cast<uint32_t>(n), 2));
  };
  std::string bytes = absl::StrCat("\x80\x02}q\x01(", text("batch_label"),
                                   "q\x02", text("training batch 1 of 5"),
                                   "q\x03", text("labels"), "q\x04]q\x05(");
  for (const int label : contents.labels) {
    absl::StrAppend(&bytes, "K", LittleEndian(static_cast<uint32_t>(label), 1));
  }
  absl::StrAppend(
      &bytes, "e", text("data"), "q\x06",
      "cnumpy.core.multiarray\n_reconstruct\nq\x07", "cnumpy\nndarray\nq\x08",
      Raw("K\x00\x85"), text("b"), "\x87Rq\x09(K\x01", number(contents.rows),
      number(contents.columns), "\x86", "cnumpy\ndtype\nq\x0a", text("u1"),
      Raw("K\x00K\x01\x87Rq\x0b(K\x03"), text("|"),
      Raw("NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"),
      contents.column_major ? "\x88" : "\x89", "T",
      LittleEndian(static_cast<uint32_t>(contents.data.size()), 4),
      contents.data, "tb", text("filenames"), Raw("q\x0d]r\x0e\x00\x00\x00("),
      text("a.png"), "q\x0f", text("b.png"), "h\x0f", "eu.");
  return bytes;
}

// A batch with `records` images whose contents are those of CifarBinary.
inline PickleContents CifarPickleContents(int records, int shift = 0) {
  PickleContents contents;
  contents.rows = records;
  contents.columns = kCifarImageBytes;
  for (int r = 0; r < records; ++r) {
    contents.labels.push_back((r + shift) % 10);
    contents.data += Pixels(r + shift, kCifarImageBytes);
  }
  return contents;
}

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_DATA_FILE_BUILDERS_H_
