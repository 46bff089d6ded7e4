#include "common/daemon/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

// The message on one line, whatever a peer or a library put into it.
class OneLineFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    for (const char c : message.payload) {
      if (c == '\n') {
        out.push_back('\\');
        out.push_back('n');
      } else {
        out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineFlag>();
  }
};

// A whole process is one member of one run.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<uint32_t> job_start{0};
std::atomic<uint64_t> own_incarnation{0};
std::atomic<int64_t> steps_done{-1};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

// Who this process is and how far it is, once it knows.
class IdentityFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& out) override {
    std::string text;
    if (const uint64_t incarnation = own_incarnation; incarnation > 0) {
      absl::StrAppend(&text, absl::Hex(job_start.load(), absl::kZeroPad8), "/",
                      incarnation, " ");
    }
    if (const int64_t step = steps_done; step >= 0) {
      absl::StrAppend(&text, "step ", step, " ");
    }
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<IdentityFlag>();
  }
};

// A process name is text, not a pattern.
std::string EscapedForPattern(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c;
    if (c == '%') escaped += '%';
  }
  return escaped;
}

}  // namespace

absl::Status InitLogging(const LoggingOptions& options) {
  const spdlog::level::level_enum level =
      spdlog::level::from_str(options.level);
  // from_str takes any unknown name for "off".
  if (level == spdlog::level::off) {
    return absl::InvalidArgumentError(
        absl::StrCat("local.log_level: found \"", options.level,
                     "\"; allowed: debug, info, warning or error"));
  }
  std::vector<spdlog::sink_ptr> sinks;
  try {
    if (options.stderr_too || options.file.empty()) {
      sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    }
    if (!options.file.empty()) {
      sinks.push_back(
          std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    }
    auto logger = std::make_shared<spdlog::logger>(options.process,
                                                   sinks.begin(), sinks.end());
    auto formatter = std::make_unique<spdlog::pattern_formatter>(
        spdlog::pattern_time_type::utc);
    formatter->add_flag<OneLineFlag>('*')
        .add_flag<IdentityFlag>('&')
        .set_pattern(absl::StrCat("%Y-%m-%dT%H:%M:%S.%eZ %-5l ",
                                  EscapedForPattern(options.process), " %&%*"));
    logger->set_formatter(std::move(formatter));
    logger->set_level(level);
    // A process may be killed at any moment, and its log is to show why.
    logger->flush_on(spdlog::level::info);
    spdlog::set_default_logger(std::move(logger));
  } catch (const std::exception& e) {
    return absl::PermissionDeniedError(
        absl::StrCat(options.file, ": cannot open the log file: ", e.what()));
  }
  return absl::OkStatus();
}

void SetLogIdentity(const std::string& job, uint64_t incarnation) {
  uint32_t start = 0;
  if (absl::SimpleHexAtoi(job.substr(0, 8), &start)) job_start = start;
  own_incarnation = incarnation;
}

void SetLogStep(int64_t step) { steps_done = step; }

}  // namespace rivulet
