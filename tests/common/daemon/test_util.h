// What the tests of this folder share.

#ifndef RIVULET_TESTS_COMMON_DAEMON_TEST_UTIL_H_
#define RIVULET_TESTS_COMMON_DAEMON_TEST_UTIL_H_

#include <fstream>
#include <iterator>
#include <string>

#include "common/daemon/config.h"
#include "tests/testing/temp_folder.h"

namespace rivulet::testing {

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A config that passes every check: a small synthetic run of 10 epochs of 32
// steps.
inline Config SmallConfig() {
  Config config;
  config.model.name = "mlp";
  config.model.hidden = {32};
  config.data.name = "synthetic";
  config.data.augment = "none";
  config.data.synthetic.train = 2048;
  config.data.synthetic.channels = 1;
  config.data.synthetic.height = 16;
  config.data.synthetic.width = 16;
  config.train.epochs = 10;
  config.train.batch_size = 64;
  config.compression.density = 0.05;
  return config;
}

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_COMMON_DAEMON_TEST_UTIL_H_
