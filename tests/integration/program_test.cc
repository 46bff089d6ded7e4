// The programs, run as a person runs them: exit codes, one clear line for each
// mistake, nothing left behind.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
#include "common/daemon/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"
#include "worker/cli/child.h"

namespace rivulet {
namespace {

using ::rivulet::testing::SmallConfig;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string output;
};

// One line and no more says why, and the code says of what kind it is.
void ExpectOneLine(const Outcome& outcome, int code, const std::string& why) {
  EXPECT_EQ(outcome.code, code) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(why));
  std::vector<std::string> errors;
  for (const absl::string_view line : absl::StrSplit(outcome.output, '\n')) {
    if (absl::StrContains(line, ": error: ")) errors.emplace_back(line);
  }
  ASSERT_EQ(errors.size(), 1u) << outcome.output;
  EXPECT_THAT(errors[0], HasSubstr(why));
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
    dir_ = fs::path(::testing::TempDir()) / "program_test" /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
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
    const fs::path path = dir_ / name;
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
    for (const auto& entry : fs::directory_iterator("/proc")) {
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
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
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

  fs::path dir_;
  std::optional<Pipe> life_;
};

TEST_F(ProgramTest, TrainLeavesAWholeRunFolderAndEvalAgreesWithIt) {
  const Outcome trained = Run(
      "rivulet", {"train", WriteConfig(SmallConfig()), "--run-dir", RunDir()});
  ASSERT_EQ(trained.code, kExitOk) << trained.output;
  EXPECT_THAT(trained.output,
              AllOf(HasSubstr("test accuracy"), HasSubstr("times less"),
                    HasSubstr(RunDir())));
  for (const char* name :
       {"config.yaml", "metrics.csv", "summary.json", "weights.safetensors",
        "checkpoints", "logs/controller.log", "logs/worker-0.log",
        "logs/worker-1.log", "logs/shard-0.log", "logs/shard-1.log"}) {
    EXPECT_TRUE(fs::exists(RunDir() + "/" + name)) << name;
  }
  ExpectNothingLeft();

  const Outcome evaluated = Run("rivulet", {"eval", RunDir(), "--json"});
  ASSERT_EQ(evaluated.code, kExitOk) << evaluated.output;
  const nlohmann::json json = nlohmann::json::parse(evaluated.output);
  EXPECT_EQ(json["test_accuracy"], Summary()["test_accuracy"]);
}

TEST_F(ProgramTest, InterruptCheckpointsAndResumeGoesOn) {
  const std::string path = WriteConfig(LongConfig());
  const std::unique_ptr<Child> train =
      Start("rivulet", {"train", path, "--run-dir", RunDir()});
  WaitForMetrics();
  train->Signal(SIGINT);
  const Outcome stopped = End(*train);
  EXPECT_EQ(stopped.code, kExitInterrupted) << stopped.output;
  EXPECT_EQ(Summary().value("status", ""), "stopped");
  const int64_t steps = Summary().value("steps", int64_t{0});
  EXPECT_GT(steps, 0);
  EXPECT_THAT(
      stopped.output,
      AllOf(
          HasSubstr(absl::StrCat("\nrivulet: stopped at step ", steps, " of ")),
          HasSubstr(absl::StrCat(RunDir(), ": checkpoints/")),
          HasSubstr(absl::StrCat(RIVULET_PROGRAM_DIR, "/rivulet train ", path,
                                 " --run-dir ", RunDir(), " --resume\n")),
          Not(HasSubstr("weights.safetensors")), Not(HasSubstr("error"))));
  ExpectNothingLeft();

  // A stopped run is not started over by mistake.
  const std::vector<std::string> files = Files();
  ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", RunDir()}),
                kExitRunFolder, "--resume");
  EXPECT_EQ(Files(), files);

  const int64_t lines = MetricsLines();
  const std::unique_ptr<Child> resumed =
      Start("rivulet", {"train", path, "--run-dir", RunDir(), "--resume"});
  WaitForLine(*resumed, absl::StrCat("resuming from step ", steps, " of "));
  WaitForMetrics(lines + 1);
  resumed->Signal(SIGINT);
  const Outcome again = End(*resumed);
  EXPECT_EQ(again.code, kExitInterrupted) << again.output;
  EXPECT_GT(Summary().value("steps", int64_t{0}), steps);

  // One member has lost its checkpoints: what the others have is not given up.
  for (const auto& entry : fs::directory_iterator(RunDir() + "/checkpoints")) {
    fs::remove(entry.path() / "worker-1.safetensors");
  }
  const std::string summary = Summary().dump();
  ExpectOneLine(
      Run("rivulet", {"train", path, "--run-dir", RunDir(), "--resume"}),
      kExitData, "worker 1 has none; worker 0 has ");
  EXPECT_EQ(Summary().dump(), summary);
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ResumingNothingBeginsAtStepZeroAndSaysSo) {
  const std::unique_ptr<Child> train = Start(
      "rivulet",
      {"train", WriteConfig(LongConfig()), "--run-dir", RunDir(), "--resume"});
  WaitForLine(*train, "nothing to resume: training begins at step 0");
  train->Signal(SIGINT);
  EXPECT_EQ(End(*train).code, kExitInterrupted);
}

// Whatever the children are doing at that moment.
TEST_F(ProgramTest, AnInterruptBeforeTheRunHasBegunEndsTheCommand) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForLine(*train, "training mlp");
  train->Signal(SIGINT);
  const Outcome outcome = End(*train);
  EXPECT_EQ(outcome.code, kExitInterrupted) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("rivulet: stopped "), Not(HasSubstr("error"))));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ADaemonThatStillLooksForTheControllerStopsWhenTold) {
  Config config = LongConfig();
  config.cluster.controller = "127.0.0.1:1";  // nobody is there
  const std::unique_ptr<Child> worker = StartDaemon(
      "rivulet-worker", WriteConfig(config), "run", {"--rank", "0"});
  WaitForLine(*worker, "looking for the controller");
  worker->Signal(SIGTERM);
  const Outcome outcome = End(*worker);
  EXPECT_EQ(outcome.code, kExitInterrupted) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rivulet-worker: told to stop while"));
}

TEST_F(ProgramTest, TwoInterruptsStopAtOnce) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  // A worker that hangs: the first interrupt cannot end the run in order.
  SignalWorker(1, SIGSTOP);
  train->Signal(SIGINT);
  WaitForLine(*train, "stopping after a checkpoint");
  absl::SleepFor(
      absl::Milliseconds(500));  // what comes sooner is one interrupt
  train->Signal(SIGINT);
  const Outcome outcome = End(*train);
  EXPECT_EQ(outcome.code, kExitInterrupted);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("stopping at once"), Not(HasSubstr("error"))));
  ExpectNothingLeft();
}

// As an orchestrator does that signals every process of a group, or a closing
// terminal.
TEST_F(ProgramTest, SignalsToAllProcessesAtOnceAreOneStop) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  for (const int pid : Processes()) kill(pid, SIGTERM);
  train->Signal(SIGHUP);
  const Outcome outcome = End(*train);
  EXPECT_EQ(outcome.code, kExitInterrupted);
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("stopped  "), HasSubstr("to go on"),
            Not(HasSubstr("stopping at once")), Not(HasSubstr("error"))));
  EXPECT_EQ(Summary().value("status", ""), "stopped");
  ExpectNothingLeft();
}

TEST_F(ProgramTest, AFolderInTheSummarysPlaceIsOneClearLine) {
  fs::create_directories(RunDir() + "/summary.json");
  ExpectOneLine(Run("rivulet", {"train", WriteConfig(SmallConfig()),
                                "--run-dir", RunDir()}),
                kExitRunFolder, "summary.json");
  ExpectNothingLeft();
}

TEST_F(ProgramTest, AStopOfDaemonsStartedByHandEndsEachOfThemAlike) {
  Config config = LongConfig();
  config.cluster.shards = 1;
  const std::string path = WriteConfig(config);
  std::string dial;
  std::vector<std::unique_ptr<Child>> daemons;
  daemons.push_back(StartController(path, &dial));
  daemons.push_back(StartDaemon("rivulet-server", path, "s",
                                {"--shard", "0", "--set", dial}));
  for (const char* rank : {"0", "1"}) {
    daemons.push_back(StartDaemon("rivulet-worker", path,
                                  absl::StrCat("w", rank),
                                  {"--rank", rank, "--set", dial}));
  }
  WaitForMetrics();
  daemons.back()->Signal(SIGTERM);
  for (const std::unique_ptr<Child>& daemon : daemons) {
    const Outcome outcome = End(*daemon);
    EXPECT_EQ(outcome.code, kExitInterrupted) << outcome.output;
    EXPECT_THAT(
        outcome.output,
        AllOf(HasSubstr(absl::StrCat(daemon->name(), ": stopped at step ")),
              HasSubstr("worker-1 was told to stop"), Not(HasSubstr("error"))));
  }
}

TEST_F(ProgramTest, ADaemonWithAnotherConfigIsToldWhichKeysDiffer) {
  const std::string path = WriteConfig(LongConfig());
  std::string dial;
  const std::unique_ptr<Child> controller = StartController(path, &dial);
  const std::unique_ptr<Child> other =
      StartDaemon("rivulet-worker", path, "w",
                  {"--rank", "0", "--set", dial, "--set", "train.seed=5",
                   "--set", "compression.density=0.3"});
  ExpectOneLine(End(*other), kExitUsage,
                "worker 0 has another config: compression.density is 0.2 for "
                "the controller, 0.3 for worker 0; train.seed is 1 for the "
                "controller, 5 for worker 0");
  controller->Signal(SIGTERM);
  EXPECT_EQ(End(*controller).code, kExitInterrupted);
}

TEST_F(ProgramTest, KilledParentLeavesNoProcess) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  EXPECT_GE(ProcessesLeft(), 6);
  train->Signal(SIGKILL);
  ASSERT_TRUE(train->WaitFor(absl::Seconds(10)));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, KilledWorkerEndsTheRunAndIsNamed) {
  const std::unique_ptr<Child> train = Start(
      "rivulet", {"train", WriteConfig(LongConfig()), "--run-dir", RunDir()});
  WaitForMetrics();
  SignalWorker(1, SIGKILL);
  ExpectOneLine(End(*train), kExitFailure, "worker-1: was killed by signal 9");
  ExpectNothingLeft();
}

TEST_F(ProgramTest, AHungWorkerIsNamedAndHoldsNobodyUp) {
  Config config = LongConfig();
  // Long enough that the others are never late, however busy the machine.
  config.cluster.lease = absl::Seconds(5);
  const std::unique_ptr<Child> train =
      Start("rivulet", {"train", WriteConfig(config), "--run-dir", RunDir()});
  WaitForMetrics();
  SignalWorker(1, SIGSTOP);
  const Outcome outcome = End(*train);
  ExpectOneLine(outcome, kExitUnavailable,
                "has been silent for more than 5s (cluster.lease)");
  EXPECT_THAT(outcome.output, HasSubstr("error: worker 1 ("));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, MissingDataFolderIsOneClearLine) {
  Config config = SmallConfig();
  config.data.name = "cifar10";
  config.data.path = dir_ / "nothing-here";
  ExpectOneLine(
      Run("rivulet", {"train", WriteConfig(config), "--run-dir", RunDir()}),
      kExitData, "nothing-here");
  EXPECT_FALSE(fs::exists(RunDir()));
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ADataFileThatIsCutIsNamed) {
  Config config = SmallConfig();
  config.data.name = "cifar10";
  config.data.path = dir_;
  const std::string cut =
      Write("data_batch_1.bin", std::string(3073 + 100, '\1'));
  const std::string path = WriteConfig(config);
  ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", RunDir()}),
                kExitData, absl::StrCat(cut, ": 3173 bytes found"));
  EXPECT_FALSE(fs::exists(RunDir()));
  ExpectOneLine(Run("rivulet-worker",
                    {"--config", path, "--rank", "0", "--run-dir", RunDir()}),
                kExitData, "cut in record 1");
  ExpectNothingLeft();
}

struct ConfigMistake {
  std::string text;
  std::string complaint;  // after the file's name
};

TEST_F(ProgramTest, ConfigMistakesAreUsageErrorsThatNameFileLineAndKey) {
  for (const ConfigMistake& mistake : {
           ConfigMistake{"name: x\ntrian:\n  epochs: 3\n",
                         ":2: trian: found an unknown key (did you mean train"},
           ConfigMistake{"name: x\ntrain:\n  epoch: 3\n",
                         ":3: train.epoch: found an unknown key (did you mean "
                         "epochs"},
           ConfigMistake{"data:\n  synthetic:\n    clases: 3\n",
                         ":3: data.synthetic.clases: found an unknown key (did "
                         "you mean classes"},
           ConfigMistake{"train:\n  batch_size: many\n",
                         ":2: train.batch_size: found "},
           ConfigMistake{"train: 7\n", ":1: train: found "},
           ConfigMistake{"", ":1: found no keys"},
       }) {
    const std::string path = Write("bad.yaml", mistake.text);
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"check", path},
          std::vector<std::string>{"train", path, "--run-dir", RunDir()}}) {
      ExpectOneLine(Run("rivulet", arguments), kExitUsage,
                    path + mistake.complaint);
    }
    EXPECT_FALSE(fs::exists(RunDir())) << mistake.text;
  }
}

TEST_F(ProgramTest, EachDaemonRefusesABadConfigItself) {
  const std::string path = Write("bad.yaml", "train: {batch_size: many}\n");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"rivulet-controller"},
        std::vector<std::string>{"rivulet-server", "--shard", "0"},
        std::vector<std::string>{"rivulet-worker", "--rank", "0"}}) {
    std::vector<std::string> arguments(command.begin() + 1, command.end());
    arguments.insert(arguments.end(),
                     {"--config", path, "--run-dir", RunDir()});
    const Outcome outcome = Run(command[0], arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << command[0] << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("train.batch_size")) << command[0];
  }
}

TEST_F(ProgramTest, ABusyPortIsNamedBeforeAnythingIsWritten) {
  const BusyPort busy;
  Config config = LongConfig();
  config.cluster.controller = busy.address();
  ExpectOneLine(Run("rivulet-controller",
                    {"--config", WriteConfig(config), "--run-dir", RunDir()}),
                kExitUnavailable,
                absl::StrCat("cannot listen on ", busy.address(),
                             " (cluster.controller): the port is in use"));
  EXPECT_FALSE(fs::exists(RunDir()));

  config.local.listen = busy.address();
  ExpectOneLine(Run("rivulet-server", {"--config", WriteConfig(config),
                                       "--shard", "0", "--run-dir", RunDir()}),
                kExitUnavailable,
                absl::StrCat("cannot listen on ", busy.address(),
                             " (local.listen): the port is in use"));
}

TEST_F(ProgramTest, ARunFolderThatCannotBeMadeIsNamed) {
  const std::string under_a_file = Write("file", "text") + "/run";
  const std::string path = WriteConfig(LongConfig());
  const std::vector<std::string> files = Files();
  ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", under_a_file}),
                kExitRunFolder, under_a_file);
  if (geteuid() != 0) {  // root may read and write everything
    fs::create_directories(RunDir());
    fs::permissions(RunDir(), fs::perms::none);
    ExpectOneLine(Run("rivulet", {"train", path, "--run-dir", RunDir()}),
                  kExitRunFolder, RunDir());
    fs::permissions(RunDir(), fs::perms::owner_all);
    EXPECT_TRUE(fs::is_empty(RunDir()));
    fs::remove(RunDir());
  }
  EXPECT_EQ(Files(), files);
  ExpectNothingLeft();
}

TEST_F(ProgramTest, ASecondRunInTheSameFolderIsRefusedAndTheFirstGoesOn) {
  const std::string path = WriteConfig(LongConfig());
  const std::unique_ptr<Child> first =
      Start("rivulet", {"train", path, "--run-dir", RunDir()});
  WaitForMetrics();
  for (const char* resume : {"", "--resume"}) {
    std::vector<std::string> arguments = {"train", path, "--run-dir", RunDir()};
    if (*resume != 0) arguments.push_back(resume);
    ExpectOneLine(Run("rivulet", arguments), kExitRunFolder,
                  "a run in this folder is going on, held by process ");
  }
  WaitForMetrics(MetricsLines());
  first->Signal(SIGINT);
  EXPECT_EQ(End(*first).code, kExitInterrupted);
  EXPECT_EQ(Summary().value("status", ""), "stopped");
}

TEST_F(ProgramTest, SaysWhoIsMissingAndGivesUpAtTheDeadline) {
  Config config = LongConfig();
  config.cluster.join_timeout = absl::Seconds(5);
  config.cluster.workers = 4;
  config.cluster.shards = 1;
  const std::string path = WriteConfig(config);
  std::string dial;
  const std::unique_ptr<Child> controller = StartController(path, &dial);
  std::vector<std::unique_ptr<Child>> members;
  members.push_back(StartDaemon("rivulet-server", path, "s",
                                {"--shard", "0", "--set", dial}));
  for (const char* rank : {"0", "1", "3"}) {
    members.push_back(StartDaemon("rivulet-worker", path,
                                  absl::StrCat("w", rank),
                                  {"--rank", rank, "--set", dial}));
  }
  ExpectOneLine(End(*controller), kExitUnavailable, "worker 2");
  EXPECT_THAT(absl::StrJoin(controller->Tail(), "\n"),
              HasSubstr("rivulet-worker --config FILE --rank 2"));
  for (const std::unique_ptr<Child>& member : members) {
    EXPECT_EQ(End(*member).code, kExitUnavailable) << member->name();
  }
  EXPECT_FALSE(fs::exists(RunDir() + "/summary.json"));
  EXPECT_THAT(Processes(), IsEmpty());
}

TEST_F(ProgramTest, EveryShippedConfigIsValid) {
  int configs = 0;
  for (const auto& entry :
       fs::directory_iterator(RIVULET_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const Outcome outcome = Run("rivulet", {"check", entry.path()});
    EXPECT_EQ(outcome.code, kExitOk) << outcome.output;
    ++configs;
  }
  EXPECT_GE(configs, 4);
}

TEST_F(ProgramTest, HelpHasExamplesEverywhere) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"rivulet"},
        std::vector<std::string>{"rivulet", "train"},
        std::vector<std::string>{"rivulet", "eval"},
        std::vector<std::string>{"rivulet", "check"},
        std::vector<std::string>{"rivulet", "bench", "model"},
        std::vector<std::string>{"rivulet-controller"},
        std::vector<std::string>{"rivulet-server"},
        std::vector<std::string>{"rivulet-worker"}}) {
    std::vector<std::string> arguments(command.begin() + 1, command.end());
    arguments.push_back("--help");
    const Outcome outcome = Run(command[0], arguments);
    EXPECT_EQ(outcome.code, kExitOk);
    EXPECT_THAT(outcome.output, HasSubstr("Example"))
        << absl::StrJoin(command, " ");
  }
}

TEST_F(ProgramTest, UnknownArgumentsAreUsageErrors) {
  EXPECT_EQ(Run("rivulet", {}).code, kExitUsage);
  EXPECT_EQ(Run("rivulet", {"trian"}).code, kExitUsage);
  EXPECT_EQ(Run("rivulet-worker", {"--rank", "0"}).code, kExitUsage);
}

TEST_F(ProgramTest, EvalNamesMissingAndDamagedWeights) {
  const Outcome missing = Run("rivulet", {"eval", dir_ / "no.safetensors"});
  EXPECT_EQ(missing.code, kExitData);
  EXPECT_THAT(missing.output, HasSubstr("no.safetensors"));
  const std::string cut = Write("cut.safetensors", "short");
  const Outcome damaged =
      Run("rivulet", {"eval", cut, "--config", WriteConfig(SmallConfig())});
  EXPECT_EQ(damaged.code, kExitData);
  EXPECT_THAT(damaged.output, HasSubstr("cut.safetensors"));
}

TEST_F(ProgramTest, NumbersOutOfRangeAndBadPathsAreRefusedBeforeAnyWork) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"eval", dir_, "--threads", "100000"},
           {"eval", dir_, "--threads", "-1"},
           {"bench", "model", "resnet20", "--threads", "1,1025"},
           {"bench", "model", "resnet20", "--threads", "0"},
           {"bench", "model", "resnet20", "--batch", "0"},
           {"bench", "model", "resnet20", "--repetitions", "100000"},
           {"bench", "model", "resnet20", "--json", dir_ / "none" / "x.json"},
           {"bench", "model", "resnet20", "--json", dir_}}) {
    const Outcome outcome = Run("rivulet", arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << absl::StrJoin(arguments, " ");
    EXPECT_THAT(outcome.output, HasSubstr(arguments[arguments.size() - 2]));
    EXPECT_THAT(outcome.output, Not(HasSubstr("images/s")));
  }
}

}  // namespace
}  // namespace rivulet
