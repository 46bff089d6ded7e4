#include "common/daemon/config.h"

#include <filesystem>
#include <set>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/daemon/config_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadFile;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The least that passes the checks.
constexpr char kBase[] = "data: {name: synthetic}\ntrain: {epochs: 1000}\n";

absl::StatusOr<Config> Parse(const std::string& yaml,
                             const std::vector<std::string>& overrides = {}) {
  return ParseConfig(yaml, "run.yaml", overrides);
}

void ExpectRefused(const std::string& yaml, const std::string& start,
                   const std::vector<std::string>& parts) {
  SCOPED_TRACE(yaml);
  const auto config = Parse(yaml);
  ASSERT_THAT(config, StatusIs(absl::StatusCode::kInvalidArgument));
  const std::string message(config.status().message());
  EXPECT_THAT(message, StartsWith(start));
  for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
}

TEST(ConfigTest, ReadsEveryKindOfValue) {
  RV_ASSERT_OK_AND_ASSIGN(const Config c, Parse(R"(
name: my-run
model: {name: mlp, hidden: [7, 8]}
data: {name: synthetic, path: "a b/c", augment: none}
train: {epochs: 1000.5, drop_last: false, seed: 9007199254740991}
optimizer:
  learning_rate: 5e-2
  schedule: {kind: step, milestones: [1, 2.5]}
cluster: {controller: "[::1]:7070", lease: 1500ms, join_timeout: 2h}
)"));
  EXPECT_EQ(c.name, "my-run");
  EXPECT_EQ(c.model.hidden, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(c.data.path, "a b/c");
  EXPECT_EQ(c.train.epochs, 1000.5);
  EXPECT_FALSE(c.train.drop_last);
  EXPECT_EQ(c.train.seed, 9007199254740991);
  EXPECT_EQ(c.optimizer.learning_rate, 0.05);
  EXPECT_EQ(c.optimizer.schedule.milestones, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(c.cluster.controller, "[::1]:7070");
  EXPECT_EQ(c.cluster.lease, absl::Milliseconds(1500));
  EXPECT_EQ(c.cluster.join_timeout, absl::Hours(2));
  EXPECT_EQ(c.local.run_dir, "runs/my-run");
}

TEST(ConfigTest, TyposAtEachDepthNameTheNearestKey) {
  ExpectRefused("modle: {name: mlp}\n",
                "run.yaml:1: modle: found an unknown key",
                {"did you mean model?", "allowed: name, model, data"});
  ExpectRefused("train:\n  epocs: 3\n",
                "run.yaml:2: train.epocs: found an unknown key",
                {"did you mean epochs?", "allowed: epochs, max_steps"});
  ExpectRefused("compression:\n  down:\n    densty: 0.1\n",
                "run.yaml:3: compression.down.densty: found an unknown key",
                {"did you mean density?", "value_bits"});
  ExpectRefused("batch_size: 3\n",
                "run.yaml:1: batch_size: ", {"did you mean train.batch_size?"});
}

TEST(ConfigTest, AKeyWithDotsIsToldToBeASection) {
  ExpectRefused("train.batch_size: 3\n",
                "run.yaml:1: train.batch_size: found a key with dots",
                {"allowed: batch_size as a key of the section train"});
  ExpectRefused("compression:\n  down.density: 0.1\n",
                "run.yaml:2: compression.down.density: found a key with dots",
                {"density as a key of the section compression.down"});
  ExpectRefused("trian.epocs: 3\n", "run.yaml:1: trian.epocs: found an unknown",
                {});
}

TEST(ConfigTest, SuggestsNothingForWhatResemblesNothing) {
  const auto config = Parse("zzzzzzzz: 1\n");
  EXPECT_THAT(config, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("zzzzzzzz"),
                                     Not(HasSubstr("did you mean")))));
}

TEST(ConfigTest, WrongTypesSayWhatWasFoundAndWhatIsAllowed) {
  ExpectRefused("train: {batch_size: 1.5}\n", "run.yaml:1: train.batch_size: ",
                {"found 1.5;", "allowed: a whole number from 1"});
  ExpectRefused("train: {batch_size: \"128\"}\n",
                "run.yaml:1: train.batch_size: ", {"found the text \"128\""});
  ExpectRefused("train: {batch_size: 010}\n", "run.yaml:1: ", {"found 010"});
  ExpectRefused("train: {batch_size: 99999999999999999999}\n",
                "run.yaml:1: ", {"found 99999999999999999999"});
  ExpectRefused("train: {batch_size: [1]}\n", "run.yaml:1: ", {"found a list"});
  ExpectRefused("train: {batch_size: }\n", "run.yaml:1: ", {"found nothing"});
  ExpectRefused("train: {epochs: many}\n", "run.yaml:1: train.epochs: ",
                {"found many;", "allowed: a number above 0"});
  for (const char* bad : {".nan", ".inf", "nan", "inf", "1e999", "0x10", "1_0",
                          "50%", "-", "e5"}) {
    ExpectRefused(absl::StrCat("train: {epochs: ", bad, "}\n"),
                  "run.yaml:1: train.epochs: found ", {"allowed: a number"});
  }
  for (const char* bad : {"yes", "True", "1", "on", "'true'"}) {
    ExpectRefused(absl::StrCat("train: {drop_last: ", bad, "}\n"),
                  "run.yaml:1: train.drop_last: found ",
                  {"allowed: true or false"});
  }
  for (const char* bad :
       {"30", "30 s", "1.5s", "-1s", "s", "30sec", "99999999999s", "'30s'"}) {
    ExpectRefused(absl::StrCat("cluster: {lease: ", bad, "}\n"),
                  "run.yaml:1: cluster.lease: found ",
                  {"a whole number and a unit (ms, s, min, h)"});
  }
  ExpectRefused("model: {hidden: 64}\n", "run.yaml:1: model.hidden: ",
                {"found 64", "a list [a, b, ...]"});
  ExpectRefused("model: {hidden: [64, 1.5]}\n",
                "run.yaml:1: model.hidden: ", {"found 1.5"});
  ExpectRefused("data: {path: {a: 1}}\n",
                "run.yaml:1: data.path: ", {"found a map", "text"});
}

TEST(ConfigTest, OutOfRangeValuesAreRefused) {
  ExpectRefused("cluster: {workers: 0}\n",
                "run.yaml:1: cluster.workers: ", {"found 0", "from 1 to 1024"});
  ExpectRefused("cluster: {shards: 257}\n",
                "run.yaml:1: cluster.shards: ", {"found 257", "from 1 to 256"});
  ExpectRefused("optimizer: {momentum: 1}\n",
                "run.yaml:1: ", {"found 1", "from 0 and below 1"});
  ExpectRefused("optimizer: {clip_norm: -1}\n", "run.yaml:1: ", {"found -1"});
  ExpectRefused("compression: {density: 0}\n",
                "run.yaml:1: ", {"found 0", "above 0, up to 1"});
  ExpectRefused("compression: {value_bits: 5}\n",
                "run.yaml:1: ", {"found 5", "1, 2, 3, 4, 8, 16 or 32"});
  ExpectRefused("compression: {compensation: 1.5}\n",
                "run.yaml:1: ", {"found 1.5", "from 0 to 1"});
  ExpectRefused("checkpoint: {keep: 0}\n", "run.yaml:1: ", {"found 0"});
  ExpectRefused("model: {norm: layer}\n", "run.yaml:1: model.norm: ",
                {"found the text \"layer\"", "batch or group"});
  ExpectRefused("model: {name: vgg}\n", "run.yaml:1: model.name: ",
                {"found the text \"vgg\"", "resnet20"});
  ExpectRefused("name: a/b\n", "run.yaml:1: name: ", {"\"a/b\"", "letters"});
  ExpectRefused("name: ..\n", "run.yaml:1: name: ", {"letters"});
  for (const char* bad : {"localhost", "h:99999", ":7070", "a b:1", "h:", "h:x",
                          "http://h:1", "[]:1"}) {
    ExpectRefused(absl::StrCat("cluster: {controller: '", bad, "'}\n"),
                  "run.yaml:1: cluster.controller: ", {"host:port"});
  }
}

TEST(ConfigTest, PoliciesOfLaterVersionsAreNamedAsSuch) {
  for (const char* policy : {"variance", "neural"}) {
    ExpectRefused(
        absl::StrCat("compression: {policy: ", policy, "}\n"),
        "run.yaml:1: compression.policy: ",
        {policy, "not in this version", "none, lossless, fixed or warmup"});
  }
}

TEST(ConfigTest, DuplicateKeysAreRefusedAtEachDepth) {
  ExpectRefused("name: a\nname: b\n",
                "run.yaml:2: name: ", {"again, first in line 1"});
  ExpectRefused("train: {seed: 1}\nmodel: {}\ntrain: {epochs: 2}\n",
                "run.yaml:3: train: ", {"first in line 1"});
  ExpectRefused("data:\n  synthetic:\n    seed: 1\n    seed: 1\n",
                "run.yaml:4: data.synthetic.seed: ", {"first in line 3"});
}

TEST(ConfigTest, EmptyAndIllShapedFilesAreRefused) {
  ExpectRefused("", "run.yaml:1: ", {"found no keys", "model"});
  ExpectRefused("# nothing yet\n", "run.yaml:", {"found no keys"});
  ExpectRefused("- a\n- b\n", "run.yaml:1: ", {"found a list", "a map with"});
  ExpectRefused("hello\n", "run.yaml:1: ", {"found hello"});
  ExpectRefused("train: 3\n",
                "run.yaml:1: train: ", {"found 3", "a map with epochs"});
  ExpectRefused("train:\n", "run.yaml:1: train: ", {"found nothing"});
  ExpectRefused("data: {synthetic: [1]}\n", "run.yaml:1: data.synthetic: ",
                {"found a list", "a map with train"});
  ExpectRefused("? [a]\n: 1\n", "run.yaml:1: ", {"a list as a key"});
}

TEST(ConfigTest, OverridesWinAndNameThemselvesInErrors) {
  RV_ASSERT_OK_AND_ASSIGN(
      const Config c,
      Parse(kBase, {"train.epochs=500", "cluster.workers=4",
                    "local.run_dir=", "model={name: mlp, hidden: [3]}",
                    "train.epochs=600", "cluster.controller=127.0.0.1:0"}));
  EXPECT_EQ(c.train.epochs, 600);
  EXPECT_EQ(c.cluster.workers, 4);
  EXPECT_EQ(c.model.name, "mlp");
  EXPECT_EQ(c.cluster.controller, "127.0.0.1:0");
  EXPECT_EQ(c.local.run_dir, "runs/run");
  // Texts need no YAML quotes within the shell's, but may have them.
  RV_ASSERT_OK_AND_ASSIGN(
      const Config texts,
      Parse(kBase, {"cluster.controller=[::1]:4000", "name='a'",
                    "data.path=\"/a: b\"", "local.run_dir=/x # y: {z"}));
  EXPECT_EQ(texts.cluster.controller, "[::1]:4000");
  EXPECT_EQ(texts.name, "a");
  EXPECT_EQ(texts.data.path, "/a: b");
  EXPECT_EQ(texts.local.run_dir, "/x # y: {z");

  const auto refused = [](const std::string& override, const char* part) {
    EXPECT_THAT(Parse(kBase, {override}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith(absl::StrCat("--set ", override)),
                               HasSubstr(part))));
  };
  refused("train.epocs=3", "train.epocs: found an unknown key");
  refused("trian.epochs=3", "did you mean train?");
  refused("train.epochs.x=3", "train.epochs: found a key below it, x");
  refused("train.batch_size=1.5", "train.batch_size: found 1.5");
  refused("train.batch_size", "key.path=value");
  refused("=3", "key.path=value");
  refused("train=3", "train: found 3");
  refused("model.hidden=[1", "found [ without an end");
  refused("train.batch_size=", "train.batch_size: found the text \"\"");
  refused(".=1", "found no key");
  refused(".name=1", "found no key");
  refused("train.=1", "found no key");
  refused("a.b.c=1", "a: found an unknown key");
}

TEST(ConfigTest, BrokenCombinationsNameThePlaceOfTheirKey) {
  ExpectRefused(absl::StrCat(kBase, "cluster: {workers: 200}\n"),
                "run.yaml: train.batch_size: found 128 with cluster.workers",
                {});
  ExpectRefused(
      absl::StrCat(kBase,
                   "compression:\n  density: 0.01\n  down: {density: 0.001}\n"),
      "run.yaml:5: compression.down.density: found 0.001", {});
  EXPECT_THAT(Parse(kBase, {"optimizer.momentum=0", "optimizer.nesterov=true"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("--set optimizer.nesterov=true: "
                                  "optimizer.nesterov: found true")));
}

TEST(ConfigTest, LoadConfigNamesAFileThatCannotBeRead) {
  const TempFolder folder;
  EXPECT_THAT(LoadConfig(folder.File("none.yaml"), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith(folder.File("none.yaml")),
                             HasSubstr("No such file"))));
  EXPECT_THAT(
      LoadConfig(folder.path(), {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot read")));
  EXPECT_THAT(LoadConfig("/dev/zero", {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("/dev/zero: found more than 262144 bytes")));
  WriteFile(folder.File("ok.yaml"), kBase);
  RV_EXPECT_OK(LoadConfig(folder.File("ok.yaml"), {}));
}

TEST(ConfigTest, EveryExampleLoadsAndRoundTrips) {
  int examples = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(RIVULET_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++examples;
    RV_ASSERT_OK_AND_ASSIGN(const Config config,
                            LoadConfig(entry.path().string(), {}));
    RV_EXPECT_OK(CheckConfig(config));
    const std::string yaml = ToYaml(config);
    RV_ASSERT_OK_AND_ASSIGN(const Config again, Parse(yaml));
    EXPECT_EQ(ToYaml(again), yaml);
    EXPECT_EQ(ConfigHash(again, false), ConfigHash(config, false));
  }
  EXPECT_GE(examples, 5);
}

TEST(ConfigTest, ToYamlKeepsAwkwardValues) {
  Config config = SmallConfig();
  config.data.path = R"(a "quoted" \ path: # {x} * 100% ü)";
  config.local.run_dir = " ~ ";
  config.optimizer.learning_rate = 0.1 + 0.2;
  config.optimizer.weight_decay = 5e-324;
  config.checkpoint.every = absl::Milliseconds(90001);
  config.report.every = absl::Minutes(2);
  config.optimizer.schedule.kind = "step";
  config.optimizer.schedule.milestones = {0.1, 1.0 / 3};
  RV_ASSERT_OK_AND_ASSIGN(const Config again, Parse(ToYaml(config)));
  EXPECT_EQ(again.data.path, config.data.path);
  EXPECT_EQ(again.local.run_dir, config.local.run_dir);
  EXPECT_EQ(again.optimizer.learning_rate, config.optimizer.learning_rate);
  EXPECT_EQ(again.optimizer.weight_decay, config.optimizer.weight_decay);
  EXPECT_EQ(again.checkpoint.every, config.checkpoint.every);
  EXPECT_EQ(again.report.every, config.report.every);
  EXPECT_EQ(again.optimizer.schedule.milestones,
            config.optimizer.schedule.milestones);
  EXPECT_EQ(ToYaml(again), ToYaml(config));
}

// Changes the key's field to some other value.
void Change(const KeySpec& key, Config* config) {
  std::visit(
      [&](auto access) {
        auto& field = *access(*config);
        using T = std::remove_reference_t<decltype(field)>;
        if constexpr (std::is_same_v<T, bool>) {
          field = !field;
        } else if constexpr (std::is_same_v<T, std::string>) {
          field += "x";
        } else if constexpr (std::is_same_v<T, absl::Duration>) {
          field += absl::Milliseconds(1);
        } else if constexpr (std::is_arithmetic_v<T>) {
          field += 1;
        } else {
          field.push_back(1);
        }
      },
      key.field);
}

TEST(ConfigTest, HashCoversJobKeysAndResumableOnesBeforeAResume) {
  const Config base = SmallConfig();
  std::set<std::string> hashes = {ConfigHash(base, false)};
  for (const KeySpec& key : ConfigKeys()) {
    SCOPED_TRACE(key.path);
    Config changed = base;
    Change(key, &changed);
    EXPECT_NE(ToYaml(changed), ToYaml(base));
    const bool local = key.scope == KeyScope::kLocal;
    const bool job = key.scope == KeyScope::kJob;
    EXPECT_EQ(ConfigHash(changed, false) == ConfigHash(base, false), local);
    EXPECT_EQ(ConfigHash(changed, true) != ConfigHash(base, true), job);
    // No two keys are taken for each other.
    if (!local) {
      EXPECT_TRUE(hashes.insert(ConfigHash(changed, false)).second);
    }
  }
}

TEST(ConfigTest, KeysHaveTheScopesThatTheProtocolRelesOn) {
  for (const char* path :
       {"data.path", "cluster.controller", "local.run_dir", "local.threads",
        "local.listen", "local.advertise", "local.log_level"}) {
    ASSERT_NE(FindKey(path), nullptr) << path;
    EXPECT_EQ(FindKey(path)->scope, KeyScope::kLocal) << path;
  }
  for (const char* path :
       {"model.name", "data.name", "train.batch_size", "train.seed",
        "cluster.workers", "cluster.shards", "optimizer.learning_rate",
        "compression.policy", "compression.density"}) {
    ASSERT_NE(FindKey(path), nullptr) << path;
    EXPECT_EQ(FindKey(path)->scope, KeyScope::kJob) << path;
  }
}

TEST(ConfigTest, EveryKeyIsDocumentedAndItsDefaultIsInRange) {
  std::set<std::string> paths;
  for (const KeySpec& key : ConfigKeys()) {
    SCOPED_TRACE(key.path);
    EXPECT_TRUE(paths.insert(key.path).second);
    EXPECT_THAT(key.doc, ::testing::EndsWith("."));
    EXPECT_FALSE(IsSection(key.path));
    EXPECT_THAT(ConfigReference(), HasSubstr(absl::StrCat("`", key.path, "`")));
  }
}

TEST(ConfigTest, CommittedReferenceIsUpToDate) {
  EXPECT_EQ(ReadFile(RIVULET_SOURCE_DIR "/docs/configuration.md"),
            ConfigReference())
      << "write it anew: rivulet check --keys > docs/configuration.md";
}

TEST(ConfigDifferencesTest, NamesEachKeyWithBothValues) {
  Config a;
  Config b;
  EXPECT_EQ(DescribeDifferences("a", CanonicalConfig(a, false), "b",
                                CanonicalConfig(b, false)),
            "");
  b.train.seed = 4;
  b.optimizer.learning_rate = 0.5;
  b.local.threads = 7;  // may differ
  EXPECT_EQ(DescribeDifferences("a", CanonicalConfig(a, false), "worker 0",
                                CanonicalConfig(b, false)),
            "optimizer.learning_rate is 0.1 for a, 0.5 for worker 0; "
            "train.seed is 1 for a, 4 for worker 0");
}

TEST(ConfigDifferencesTest, TakesAnyTextFromAPeer) {
  EXPECT_EQ(DescribeDifferences("a", "k=1", "b",
                                "=\n\x01"
                                "==\nk"),
            " is nothing for a,  for b; \\x01 is nothing for a, = for b; "
            "k is 1 for a,  for b");
  std::string many;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, i, "=x\n");
  EXPECT_THAT(DescribeDifferences("a", "", "b", many),
              HasSubstr(" and 995 more"));
  EXPECT_LT(DescribeDifferences("a", "", "b", std::string(100000, 'k')).size(),
            300u);
}

}  // namespace
}  // namespace rivulet
