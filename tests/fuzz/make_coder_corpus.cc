// Writes the seeds of rice_fuzzer, level_fuzzer and row_fuzzer, into the
// folders rice, level and row of an existing one.
//
//   make_coder_corpus tests/fuzz/corpus

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "compression/bit_io.h"
#include "compression/level_coder.h"
#include "compression/rice.h"
#include "compression/row_coder.h"
#include "tests/fuzz/row_contexts.h"

namespace rivulet {
namespace {

std::vector<uint32_t> Positions(int64_t size, double density) {
  RandomStream rng(1, RandomPurpose::kTest, static_cast<uint64_t>(size));
  std::vector<uint32_t> positions;
  for (int64_t p = 0; p < size; ++p) {
    if (rng.UniformDouble() < density) {
      positions.push_back(static_cast<uint32_t>(p));
    }
  }
  return positions;
}

std::string Rice(const std::vector<uint32_t>& positions, int64_t size,
                 int parameter) {
  std::string bytes(1, static_cast<char>(parameter));
  AppendLittleEndian(static_cast<uint32_t>(size), 4, &bytes);
  AppendLittleEndian(static_cast<uint32_t>(positions.size()), 2, &bytes);
  AppendRice(positions, 0, parameter, &bytes);
  return bytes;
}

std::string LevelsOf(uint32_t kind) {
  RandomStream rng(2, RandomPurpose::kTest, kind);
  std::string bytes(1, static_cast<char>(kind));
  constexpr size_t kCount = 101;
  AppendLittleEndian(kCount, 2, &bytes);
  std::vector<int8_t> levels(kCount);
  const uint32_t limit = kind < 8 ? 1u << kind / 2 : kind == 8 ? 7 : 127;
  for (int8_t& level : levels) {
    const uint32_t a = rng.UniformInt(limit);
    const auto index = static_cast<int>(std::min(a, rng.UniformInt(limit)));
    level = static_cast<int8_t>(rng.UniformInt(2) == 0 ? 1 + index : ~index);
  }
  if (kind < 8) {
    AppendLevels(levels, 1 << kind / 2,
                 kind % 2 == 0 ? LevelMode::kPacked : LevelMode::kAdaptive,
                 &bytes);
  } else {
    AppendIntegers(levels, kind == 8 ? 4 : 8, &bytes);
  }
  return bytes;
}

std::string RowsOf(size_t which, const std::vector<uint32_t>& positions) {
  std::string bytes(1, static_cast<char>(which));
  AppendLittleEndian(static_cast<uint32_t>(positions.size()), 2, &bytes);
  AppendRows(fuzz::MakeRowContext(which), positions, &bytes);
  return bytes;
}

bool Write(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (out.flush()) return true;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return false;
}

int Main(const std::string& folder) {
  bool ok = true;
  const auto write = [&](const char* name, const std::string& bytes) {
    ok = Write(absl::StrCat(folder, "/", name), bytes) && ok;
  };
  write("rice/typical", Rice(Positions(5000, 0.01), 5000, 6));
  write("rice/dense", Rice(Positions(300, 0.4), 300, 0));
  write("rice/long_runs", Rice(Positions(5000, 0.01), 5000, 0));
  write("rice/huge", Rice({2147483648u, 4294967294u}, 4294967295, 31));
  for (uint32_t kind = 0; kind < 10; ++kind) {
    write(absl::StrCat("level/kind_", kind).c_str(), LevelsOf(kind));
  }
  write("row/fresh", RowsOf(0, Positions(1000, 0.03)));
  write("row/classes", RowsOf(1, Positions(3001, 0.03)));
  write("row/dense_in_classes", RowsOf(1, Positions(3001, 0.7)));
  write("row/nearly_whole", RowsOf(2, Positions(640, 0.97)));
  write("row/nearly_empty", RowsOf(2, Positions(640, 0.01)));
  write("row/huge", RowsOf(3, {5, 65537, 2147483648u, 4294967294u}));
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  return rivulet::Main(argv[1]);
}
