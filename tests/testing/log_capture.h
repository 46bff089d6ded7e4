// Reads what spdlog's default logger is given.

#ifndef RIVULET_TESTS_TESTING_LOG_CAPTURE_H_
#define RIVULET_TESTS_TESTING_LOG_CAPTURE_H_

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cstddef>
#include <memory>
#include <sstream>
#include <string>

namespace rivulet::testing {

// What is logged in its lifetime.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture() { spdlog::set_default_logger(before_); }

  int Count(const std::string& part) const {
    const std::string text = text_.str();
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }

 private:
  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_LOG_CAPTURE_H_
