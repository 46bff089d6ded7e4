// The programs, run as a person runs them: what their tests share.

#ifndef RIVULET_TESTS_INTEGRATION_PROGRAM_TEST_UTIL_H_
#define RIVULET_TESTS_INTEGRATION_PROGRAM_TEST_UTIL_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/daemon/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"
#include "worker/cli/child.h"

namespace rivulet::testing {

struct Outcome {
  int code = -1;
  std::string output;
};

// One line and no more says why, and the code says of what kind it is.
inline void ExpectOneLine(const Outcome& outcome, int code,
                          const std::string& why) {
  EXPECT_EQ(outcome.code, code) << outcome.output;
  EXPECT_THAT(outcome.output, ::testing::HasSubstr(why));
  std::vector<std::string> errors;
  for (const absl::string_view line : absl::StrSplit(outcome.output, '\n')) {
    if (absl::StrContains(line, ": error: ")) errors.emplace_back(line);
  }
  ASSERT_EQ(errors.size(), 1u) << outcome.output;
  EXPECT_THAT(errors[0], ::testing::HasSubstr(why));
}

// A loopback port that is taken for as long as this lives.
class BusyPort {
 public:
  BusyPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, raw, length), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, raw, &length), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  BusyPort(const BusyPort&) = delete;
  BusyPort& operator=(const BusyPort&) = delete;
  ~BusyPort() { close(fd_); }

  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RV_ASSERT_OK_AND_ASSIGN(Pipe life, Pipe::Create());
    life_.emplace(std::move(life));
    dir_ = std::filesystem::path(::testing::TempDir()) / "program_test" /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }

  std::unique_ptr<Child> Start(const std::string& program,
                               std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     absl::StrCat(RIVULET_PROGRAM_DIR, "/", program));
    absl::StatusOr<std::unique_ptr<Child>> child =
        Child::Spawn(program, arguments, *life_, nullptr);
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }

  Outcome Run(const std::string& program,
              const std::vector<std::string>& arguments) {
    const std::unique_ptr<Child> child = Start(program, arguments);
    EXPECT_TRUE(child->WaitFor(absl::Seconds(100))) << program;
    const int code = child->Poll().value_or(ChildExit{}).code;
    return {code, absl::StrJoin(child->Tail(), "\n")};
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir_ / name;
    std::ofstream(path) << text;
    return path;
  }
  std::string WriteConfig(const Config& config) {
    return Write("config.yaml", ToYaml(config));
  }
  std::string RunDir() const { return dir_ / "run"; }

  nlohmann::json Summary() const {
    std::ifstream in(RunDir() + "/summary.json");
    return nlohmann::json::parse(in, nullptr, false);
  }

  // Processes whose command line names this test's folder and `text`, in which
  // a space stands for the end of an argument.
  std::vector<pid_t> Processes(const std::string& text = "") const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream in(entry.path() / "cmdline", std::ios::binary);
      std::string line((std::istreambuf_iterator<char>(in)), {});
      std::replace(line.begin(), line.end(), '\0', ' ');
      if (absl::StrContains(line, dir_.string()) &&
          absl::StrContains(line, text)) {
        found.push_back(std::stoi(entry.path().filename()));
      }
    }
    return found;
  }
  int ProcessesLeft() const { return static_cast<int>(Processes().size()); }
  void SignalWorker(int rank, int signal) const {
    const std::vector<pid_t> found =
        Processes(absl::StrCat("--rank ", rank, " "));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(kill(found[0], signal), 0);
  }
  void ExpectNothingLeft() const {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (ProcessesLeft() > 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_EQ(ProcessesLeft(), 0);
  }
  int64_t MetricsLines() const {
    std::ifstream in(RunDir() + "/metrics.csv");
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
  // Waits until the run has reported since metrics.csv had `lines` lines; the
  // first is its header.
  void WaitForMetrics(int64_t lines = 1) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(90);
    while (absl::Now() < deadline) {
      if (MetricsLines() > lines) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "no metrics in time";
  }
  // Waits until `child` has said `text`, and returns that line from there on.
  static std::string WaitForLine(const Child& child, const std::string& text) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (absl::Now() < deadline) {
      for (const std::string& line : child.Tail()) {
        const size_t at = line.find(text);
        if (at != std::string::npos) return line.substr(at);
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "'" << text << "' was not said in time";
    return "";
  }
  // Waits for the end of `child`.
  static Outcome End(Child& child) {
    EXPECT_TRUE(child.WaitFor(absl::Seconds(60))) << child.name();
    return {child.Poll().value_or(ChildExit{}).code,
            absl::StrJoin(child.Tail(), "\n")};
  }

  // A daemon, as somebody starts it by hand; `run_dir` lies in the test's
  // folder.
  std::unique_ptr<Child> StartDaemon(const std::string& program,
                                     const std::string& config,
                                     const std::string& run_dir,
                                     std::vector<std::string> more) {
    more.insert(more.end(), {"--config", config, "--run-dir", dir_ / run_dir});
    return Start(program, std::move(more));
  }
  // A controller on a free port, and what makes the others dial it.
  std::unique_ptr<Child> StartController(const std::string& config,
                                         std::string* dial) {
    std::unique_ptr<Child> child =
        StartDaemon("rivulet-controller", config, "run",
                    {"--set", "cluster.controller=127.0.0.1:0"});
    const std::vector<std::string> words =
        absl::StrSplit(WaitForLine(*child, "listening on "),
                       absl::ByAnyChar(" ,"), absl::SkipEmpty());
    *dial = absl::StrCat("cluster.controller=",
                         words.size() > 2 ? words[2] : "nothing");
    return child;
  }

  // The files below the test's folder.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(dir_)) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  static Config LongConfig() {
    Config config = SmallConfig();
    config.train.epochs = 100000;
    config.train.evaluate_every_epochs = 0;
    config.compression.density = 0.2;
    config.report.every = absl::Milliseconds(100);
    config.checkpoint.every_steps = 0;
    config.checkpoint.every = absl::Minutes(5);
    return config;
  }

  std::filesystem::path dir_;
  std::optional<Pipe> life_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_INTEGRATION_PROGRAM_TEST_UTIL_H_
