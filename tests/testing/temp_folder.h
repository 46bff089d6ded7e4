// A folder of a test's own that goes away with it, and files in it.

#ifndef RIVULET_TESTS_TESTING_TEMP_FOLDER_H_
#define RIVULET_TESTS_TESTING_TEMP_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "gtest/gtest.h"

namespace rivulet::testing {

class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "/rivulet_XXXXXX") {
    RV_CHECK(mkdtemp(path_.data()) != nullptr) << path_;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;  // what cannot be removed harms no test
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteBytes(const std::string& path, absl::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  RV_CHECK(out.good()) << path;
}

inline std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  RV_CHECK(in.good()) << path;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_TEMP_FOLDER_H_
