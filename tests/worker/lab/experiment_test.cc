#include "worker/lab/experiment.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/daemon/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGrid[] = R"(base: base.yaml
out: OUT/runs
csv: OUT/results/x.csv
seeds: [2, 1]
set: {train.max_steps: 24}
arms:
  slow: {optimizer.learning_rate: 0.01}
  plain:
grid:
  compression.density: [0.5, 0.45]
)";

class ExperimentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir()) / "experiment_test" /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    Write("base.yaml", ToYaml(SmallConfig()));
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = dir_ / name;
    std::ofstream(path) << absl::StrReplaceAll(text, {{"OUT", dir_.string()}});
    return path;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(dir_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> Lines() const {
    return absl::StrSplit(Read("results/x.csv"), '\n', absl::SkipEmpty());
  }

  absl::StatusOr<std::vector<ExperimentRun>> Runs(
      const std::string& text, const std::vector<std::string>& overrides = {}) {
    absl::StatusOr<Experiment> experiment =
        LoadExperiment(Write("grid.yaml", text));
    if (!experiment.ok()) return experiment.status();
    experiment_ = *std::move(experiment);
    return LayOut(experiment_, overrides);
  }

  // Runs all and notes which trained, in `trained_`.
  absl::Status Run(const std::string& text, ExperimentOptions options = {}) {
    const absl::StatusOr<std::vector<ExperimentRun>> runs = Runs(text);
    if (!runs.ok()) return runs.status();
    trained_.clear();
    options.begins = [this](const ExperimentRun& run, RunState state) {
      if (state == RunState::kToDo) trained_.push_back(run.name);
      if (state == RunState::kResumable) {
        trained_.push_back(absl::StrCat(run.name, " resumed"));
      }
    };
    return RunExperiment(experiment_, *runs, options);
  }

  std::filesystem::path dir_;
  Experiment experiment_;
  std::vector<std::string> trained_;
};

TEST_F(ExperimentTest, RunsAreOrderedBySeedCombinationAndArm) {
  RV_ASSERT_OK_AND_ASSIGN(const std::vector<ExperimentRun> runs, Runs(kGrid));
  std::vector<std::string> names;
  for (const ExperimentRun& run : runs) names.push_back(run.name);
  EXPECT_THAT(
      names,
      ElementsAre("slow density=0.5 seed 2", "plain density=0.5 seed 2",
                  "slow density=0.45 seed 2", "plain density=0.45 seed 2",
                  "slow density=0.5 seed 1", "plain density=0.5 seed 1",
                  "slow density=0.45 seed 1", "plain density=0.45 seed 1"));
  EXPECT_EQ(runs[0].run_dir, dir_ / "runs/slow-density=0.5-seed2");
  EXPECT_EQ(runs[0].settings,
            "train.max_steps=24; optimizer.learning_rate=0.01; "
            "compression.density=0.5");
  EXPECT_EQ(runs[0].config.train.seed, 2);
  EXPECT_EQ(runs[0].config.train.max_steps, 24);
  EXPECT_EQ(runs[0].config.optimizer.learning_rate, 0.01);
  EXPECT_EQ(runs[0].config.compression.density, 0.5);
  EXPECT_EQ(runs[1].config.optimizer.learning_rate, 0.05);  // the base's
}

TEST_F(ExperimentTest, TwoGridKeysGiveEveryCombination) {
  RV_ASSERT_OK_AND_ASSIGN(
      const std::vector<ExperimentRun> runs,
      Runs("base: base.yaml\nout: o\ncsv: c\nseeds: [1]\narms: {a: }\n"
           "grid: {model.hidden: [[32, 16], [8]], cluster.workers: [1, 2]}\n"));
  std::vector<std::string> folders;
  for (const ExperimentRun& run : runs) folders.push_back(run.run_dir);
  EXPECT_THAT(folders, ElementsAre("o/a-hidden=_32__16_-workers=1-seed1",
                                   "o/a-hidden=_32__16_-workers=2-seed1",
                                   "o/a-hidden=_8_-workers=1-seed1",
                                   "o/a-hidden=_8_-workers=2-seed1"));
  EXPECT_EQ(runs[2].config.model.hidden, std::vector<int64_t>{8});
}

TEST_F(ExperimentTest, ACommandLineIsStrongerAndMayNotHideWhatIsCompared) {
  RV_ASSERT_OK_AND_ASSIGN(
      const std::vector<ExperimentRun> runs,
      Runs(kGrid, {"train.max_steps=25", "data.path=/somewhere"}));
  EXPECT_EQ(runs[0].config.train.max_steps, 25);
  EXPECT_EQ(runs[0].config.data.path, "/somewhere");
  // The newest of each key, and none that changes no result.
  EXPECT_EQ(runs[0].settings,
            "optimizer.learning_rate=0.01; compression.density=0.5; "
            "train.max_steps=25");
  const auto refused = [&](const std::string& text, const std::string& by) {
    EXPECT_THAT(Runs(kGrid, {text}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith(absl::StrCat("--set ", text, ": ")),
                               HasSubstr(absl::StrCat("given by ", by)))));
  };
  refused("compression.density=0.3", "grid");
  refused("optimizer.learning_rate=0.3", "arm slow");
  refused("train.seed=4", "seeds");
  refused("local.run_dir=x", "out");
  EXPECT_THAT(Runs(kGrid, {"train.epoch=1"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean epochs?")));
}

TEST_F(ExperimentTest, ABadFileIsRefusedByLineAndKey) {
  const std::string good =
      "base: base.yaml\nout: o\ncsv: c\nseeds: [1]\narms:\n  a:\n";
  RV_ASSERT_OK(Runs(good));
  const auto refused = [&](const std::string& text,
                           const std::vector<std::string>& words) {
    const absl::StatusOr<std::vector<ExperimentRun>> runs = Runs(text);
    ASSERT_THAT(runs, StatusIs(absl::StatusCode::kInvalidArgument)) << text;
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(runs.status().message()), HasSubstr(word))
          << text;
    }
  };
  refused("", {"grid.yaml:1: found nothing", "allowed: a map with base, out"});
  refused("- a\n", {"grid.yaml:1: found a list", "allowed: a map"});
  refused("base: [\n", {"grid.yaml:1: found [ without an end"});
  for (const char* key : {"base", "out", "csv", "seeds", "arms"}) {
    std::string without = good;
    const size_t at = without.find(absl::StrCat(key, ":"));
    without.replace(at, std::string(key).size(), "grid");
    refused(key == std::string("arms") || key == std::string("seeds") ? without
                                                                      : without,
            {absl::StrCat(key, ": found no such key")});
  }
  refused(good + "gird: {}\n",
          {"grid.yaml:7: gird: found an unknown key", "did you mean grid?"});
  refused(good + "out: p\n",
          {"grid.yaml:7: out: found the key again, first in line 2"});
  refused(absl::StrReplaceAll(good, {{"out: o", "out: [o]"}}),
          {"grid.yaml:2: out: found a list; allowed: a path"});
  refused(absl::StrReplaceAll(good, {{"out: o", "out:"}}),
          {"grid.yaml:2: out: found nothing; allowed: a path"});
  refused(absl::StrReplaceAll(good, {{"[1]", "1"}}),
          {"grid.yaml:4: seeds: found 1; allowed: a list"});
  refused(absl::StrReplaceAll(good, {{"[1]", "[]"}}),
          {"grid.yaml:4: seeds: found an empty list"});
  refused(absl::StrReplaceAll(good, {{"[1]", "[1, x]"}}),
          {"grid.yaml:4: seeds: found x; allowed: a whole number"});
  refused(absl::StrReplaceAll(good, {{"[1]", "[1, 1]"}}),
          {"grid.yaml:4: seeds: found 1 again"});
  refused(good + "set: 4\n", {"grid.yaml:7: set: found 4; allowed: a map"});
  refused(good + "set: {train.epoch: 4}\n",
          {"grid.yaml:7: set: train.epoch: found an unknown key",
           "did you mean train.epochs?"});
  refused(good + "set: {compression: {density: 1}}\n",
          {"grid.yaml:7: set: compression: found a section",
           "such as compression."});
  refused(good + "set: {train.epochs: many}\n",
          {"grid.yaml:7: set: train.epochs: found many; allowed: a number"});
  refused(good + "set: {train.batch_size: 0}\n",
          {"grid.yaml:7: set: train.batch_size: found 0"});
  refused(good + "set: {train.seed: 2}\n",
          {"grid.yaml:7: set: train.seed: is given by seeds"});
  refused(good + "set: {local.run_dir: x}\n", {"is given by out"});
  refused(absl::StrReplaceAll(good, {{"  a:", "  a/b:"}}),
          {"grid.yaml:6: arms: found an arm's name", "such as dgc_c1"});
  refused(absl::StrReplaceAll(good, {{"  a:", "  a: 5"}}),
          {"grid.yaml:6: arms: a: found 5; allowed: a map"});
  refused(absl::StrReplaceAll(good, {{"\n  a:", " {}"}}),
          {"grid.yaml:5: arms: found none; allowed: at least one"});
  refused(absl::StrReplaceAll(good, {{"  a:", "  a: {train.epoch: 1}"}}),
          {"grid.yaml:6: arms: a: train.epoch: found an unknown key"});
  refused(good + "grid: {compression.density: 0.1}\n",
          {"grid.yaml:7: grid: compression.density: found 0.1; allowed: a list "
           "of values, each a number above 0"});
  refused(good + "grid: {compression.density: [0.1, 7]}\n",
          {"grid.yaml:7: grid: compression.density: found 7"});
  refused(good + "grid: {compression.density: [0.1, 0.10]}\n",
          {"grid: compression.density: found 0.1 again"});
  refused(absl::StrReplaceAll(good, {{"  a:", "  a: {train.epochs: 1}"}}) +
              "grid: {train.epochs: [1, 2]}\n",
          {"grid.yaml:6: arms: a: train.epochs: found a key that the grid "
           "sets too"});
}

TEST_F(ExperimentTest, AConfigThatCannotBeIsRefusedByItsRun) {
  EXPECT_THAT(
      Runs("base: none.yaml\nout: o\ncsv: c\nseeds: [1]\narms: {a: }\n"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("a seed 1: "), HasSubstr("none.yaml"))));
  EXPECT_THAT(Runs("base: base.yaml\nout: o\ncsv: c\nseeds: [1]\narms:\n  a:\n"
                   "  b: {compression.density: 0.001}\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("b seed 1: compression.density"),
                             HasSubstr("min_moves"))));
  EXPECT_THAT(Runs("base: base.yaml\nout: o\ncsv: c\nseeds: [1]\n"
                   "arms: {a: }\ngrid: {name: [\"a b\", a_b]}\n")
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
}

TEST_F(ExperimentTest, EachFinishedRunIsALineAndIsSkippedThen) {
  RV_ASSERT_OK(Run(kGrid));
  EXPECT_EQ(trained_.size(), 8u);
  std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[0],
            "arm,compression.density,seed,epochs,steps,workers,test_accuracy,"
            "test_perplexity,train_loss,bytes_up,bytes_down,payload_up,"
            "payload_down,ratio,ratio_steady_up,seconds,samples_per_second,"
            "settings,weights_sha256,version,host");
  EXPECT_THAT(lines[1], StartsWith("slow,0.5,2,1.5,24,2,"));
  EXPECT_THAT(lines[8], StartsWith("plain,0.45,1,1.5,24,2,"));
  const std::vector<std::string> fields = SplitCsvLine(lines[1]);
  ASSERT_EQ(fields.size(), 21u);
  EXPECT_EQ(fields[7], "");  // a classifier has no perplexity
  EXPECT_EQ(fields[17],
            "train.max_steps=24; optimizer.learning_rate=0.01; "
            "compression.density=0.5");
  EXPECT_EQ(fields[18].size(), 64u);
  const std::string whole = Read("results/x.csv");
  RV_ASSERT_OK(Run(kGrid));
  EXPECT_TRUE(trained_.empty());
  EXPECT_EQ(Read("results/x.csv"), whole);
}

TEST_F(ExperimentTest, ALineThatIsMissingComesBackWithoutTraining) {
  RV_ASSERT_OK(Run(kGrid));
  const std::vector<std::string> lines = Lines();
  // The last line was cut by what ended the process.
  std::string text = absl::StrJoin(lines.begin(), lines.end() - 1, "\n");
  absl::StrAppend(&text, "\n", lines.back().substr(0, 20));
  Write("results/x.csv", text);
  RV_ASSERT_OK(Run(kGrid));
  EXPECT_TRUE(trained_.empty());
  EXPECT_EQ(Lines(), lines);
}

TEST_F(ExperimentTest, StoppedItGoesOnInTheSameBits) {
  RV_ASSERT_OK(Run(kGrid));
  std::vector<std::string> hashes;
  for (const std::string& line : Lines()) {
    hashes.push_back(SplitCsvLine(line)[18]);
  }
  std::filesystem::remove_all(dir_ / "runs");
  std::filesystem::remove_all(dir_ / "results");

  // A run asks at each of its steps and at least once before it begins.
  int calls = 0;
  EXPECT_THAT(Run(kGrid, {.stop_requested = [&] { return ++calls > 3 * 24; }}),
              StatusIs(absl::StatusCode::kCancelled));
  const size_t began = trained_.size();
  ASSERT_GE(began, 1u);
  ASSERT_LT(began, 8u);
  const size_t done = Lines().size();  // and the header
  RV_ASSERT_OK(Run(kGrid));
  // Either the stop came between two runs, or the last goes on.
  if (done - 1 < began) {
    EXPECT_THAT(trained_[0], HasSubstr(" resumed"));
  }
  EXPECT_EQ(trained_.size(), 9 - done);
  std::vector<std::string> again;
  for (const std::string& line : Lines()) {
    again.push_back(SplitCsvLine(line)[18]);
  }
  EXPECT_EQ(again, hashes);
}

constexpr char kFails[] = R"(base: base.yaml
out: OUT/runs
csv: OUT/results/x.csv
seeds: [1]
arms:
  bad: {optimizer.learning_rate: 1000, train.epochs: 20}
  good:
)";

TEST_F(ExperimentTest, ARunThatFailsGetsNoLineAndTheNextRuns) {
  std::vector<std::string> failed;
  EXPECT_THAT(
      Run(kFails, {.ended =
                       [&](const ExperimentRun& run, const absl::Status& s) {
                         if (!s.ok()) failed.push_back(run.name);
                       }}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("1 of 2 runs failed"), HasSubstr("bad seed 1"),
                     HasSubstr("voided"))));
  EXPECT_THAT(failed, ElementsAre("bad seed 1"));
  EXPECT_THAT(trained_, ElementsAre("bad seed 1", "good seed 1"));
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], StartsWith("good,1,"));
}

TEST_F(ExperimentTest, ACsvOfAnotherExperimentIsRefused) {
  std::filesystem::create_directories(dir_ / "results");
  Write("results/x.csv", "arm,seed,accuracy\na,1,0.5\n");
  EXPECT_THAT(Run(kGrid), StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("results/x.csv"),
                                         HasSubstr("arm,seed,accuracy"))));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "runs"));
  RV_ASSERT_OK_AND_ASSIGN(const auto runs, Runs(kGrid));
  Write("results/x.csv",
        absl::StrCat(ResultsHeader(experiment_.GridKeys()), "\na,b\n"));
  EXPECT_THAT(Run(kGrid), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("results/x.csv:2: found a line of "
                                             "2 fields")));
}

TEST_F(ExperimentTest, SettingsThatChangedAreNotTakenForDone) {
  const std::string text =
      "base: base.yaml\nout: OUT/runs\ncsv: OUT/results/x.csv\nseeds: [1]\n"
      "arms: {a: {train.max_steps: 60}}\n";
  RV_ASSERT_OK(Run(text));
  const std::string changed = absl::StrReplaceAll(text, {{"60", "61"}});
  EXPECT_THAT(Run(changed), StatusIs(absl::StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr("train.max_steps=60"),
                                           HasSubstr("train.max_steps=61"))));
  // Nor is a folder without a line.
  std::filesystem::remove_all(dir_ / "results");
  EXPECT_THAT(Run(changed), StatusIs(absl::StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr("another config"),
                                           HasSubstr("train.max_steps"))));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "results/x.csv"));
}

TEST_F(ExperimentTest, TwoInOneFolderDoNotMeet) {
  RV_ASSERT_OK_AND_ASSIGN(const RunFolder held,
                          RunFolder::Create(dir_ / "runs", /*resume=*/true));
  EXPECT_THAT(Run(kGrid), StatusIs(absl::StatusCode::kAlreadyExists,
                                   HasSubstr(dir_ / "runs")));
  EXPECT_TRUE(trained_.empty());
}

TEST_F(ExperimentTest, TellsAnExperimentFromAConfig) {
  EXPECT_THAT(IsExperiment(Write("grid.yaml", kGrid)),
              ::rivulet::testing::IsOkAndHolds(true));
  EXPECT_THAT(IsExperiment(dir_ / "base.yaml"),
              ::rivulet::testing::IsOkAndHolds(false));
  EXPECT_THAT(
      IsExperiment(dir_ / "none.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none.yaml")));
}

TEST(ResultsLineTest, QuotesWhatNeedsItAndKeepsNumbers) {
  const std::string summary = R"({"epochs": 2.0, "steps": 7, "workers": 4,
    "test_accuracy": 0.5, "test_perplexity": 81.25, "train_loss": null,
    "bytes_up": 10, "bytes_down": 11, "payload_up": 8, "payload_down": 9,
    "ratio": 186.5, "ratio_steady_up": 0.0, "seconds": 1.5,
    "samples_per_second": 2.5, "weights_sha256": "ab", "version": "0.1.0",
    "host": "CPU \"x\", 2 cores"})";
  RV_ASSERT_OK_AND_ASSIGN(
      const std::string line,
      ResultsLine({"a", {"[1, 2]"}, 3}, "k=\"v\"", summary));
  EXPECT_EQ(line,
            "a,\"[1, 2]\",3,2.0,7,4,0.5,81.25,,10,11,8,9,186.5,0.0,1.5,2.5,"
            "\"k=\"\"v\"\"\",ab,0.1.0,\"CPU \"\"x\"\", 2 cores\"");
  EXPECT_THAT(SplitCsvLine(line)[1], "[1, 2]");
  EXPECT_THAT(SplitCsvLine(line)[17], "k=\"v\"");
  EXPECT_THAT(SplitCsvLine(line)[20], "CPU \"x\", 2 cores");
  EXPECT_THAT(ResultsLine({"a", {}, 3}, "", "{\"epochs\": 1}"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("summary.json has no steps")));
  EXPECT_THAT(ResultsLine({"a", {}, 3}, "", "no json"),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace rivulet
