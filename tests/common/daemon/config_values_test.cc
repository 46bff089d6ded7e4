#include "common/daemon/config_values.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/daemon/yaml_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

const KeySpec& Key(const char* path) {
  const KeySpec* const key = FindKey(path);
  RV_CHECK(key != nullptr) << path;
  return *key;
}

TEST(ConfigValuesTest, EveryDefaultIsAllowedAndReadsBack) {
  const Config defaults;
  for (const KeySpec& key : ConfigKeys()) {
    SCOPED_TRACE(key.path);
    RV_EXPECT_OK(CheckKey(key, defaults));
    RV_ASSERT_OK_AND_ASSIGN(const YamlValue value,
                            ParseYaml(FormatKey(key, defaults), "default"));
    Config read;
    RV_EXPECT_OK(SetKey(key, value, &read));
    EXPECT_EQ(FormatKey(key, read), FormatKey(key, defaults));
  }
}

TEST(ConfigValuesTest, RandomNumbersReadBackBitForBit) {
  constexpr uint64_t kSeed = 17;
  RecordProperty("seed", static_cast<int>(kSeed));
  RandomStream rng(kSeed, RandomPurpose::kTest);
  const KeySpec& key = Key("optimizer.weight_decay");
  for (int i = 0; i < 1000; ++i) {
    Config written, read;
    written.optimizer.weight_decay =
        std::ldexp(rng.UniformDouble(), -static_cast<int>(rng.UniformInt(80)));
    RV_ASSERT_OK_AND_ASSIGN(const YamlValue value,
                            ParseYaml(FormatKey(key, written), "random"));
    RV_ASSERT_OK(SetKey(key, value, &read));
    EXPECT_EQ(read.optimizer.weight_decay, written.optimizer.weight_decay);
  }
}

TEST(ConfigValuesTest, RandomDurationsReadBack) {
  constexpr uint64_t kSeed = 18;
  RecordProperty("seed", static_cast<int>(kSeed));
  RandomStream rng(kSeed, RandomPurpose::kTest);
  const KeySpec& key = Key("checkpoint.every");
  const absl::Duration units[] = {absl::Milliseconds(1), absl::Seconds(1),
                                  absl::Minutes(1), absl::Hours(1)};
  for (int i = 0; i < 400; ++i) {
    Config written, read;
    written.checkpoint.every =
        static_cast<int64_t>(rng.UniformInt(700)) * units[i % 4];
    RV_ASSERT_OK_AND_ASSIGN(const YamlValue value,
                            ParseYaml(FormatKey(key, written), "random"));
    RV_ASSERT_OK(SetKey(key, value, &read));
    EXPECT_EQ(read.checkpoint.every, written.checkpoint.every);
  }
}

TEST(ConfigValuesTest, HandMadeConfigsAreCheckedToo) {
  Config config;
  config.optimizer.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(CheckKey(Key("optimizer.learning_rate"), config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nan")));
  config.report.every = absl::InfiniteDuration();
  EXPECT_THAT(CheckKey(Key("report.every"), config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("allowed: a whole number and a unit")));
  config.cluster.lease = absl::Seconds(5) + absl::Microseconds(1);
  EXPECT_THAT(CheckKey(Key("cluster.lease"), config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("found 5.000001s")));
  config.data.path = "two\nlines";
  EXPECT_THAT(CheckKey(Key("data.path"), config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("found the text \"two\\nlines\"")));
  config.data.path = std::string(2000, 'x');
  EXPECT_THAT(
      CheckKey(Key("data.path"), config),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2000 bytes")));
  config.model.hidden.assign(65, 1);
  EXPECT_THAT(
      CheckKey(Key("model.hidden"), config),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65 items")));
}

TEST(ConfigValuesTest, TextsAreUtf8WithoutControlCharacters) {
  Config config;
  config.local.run_dir = "runs/Z\xc3\xbcrich";
  RV_EXPECT_OK(CheckKey(Key("local.run_dir"), config));
  for (const char* bad : {"a\tb", "a\x7f", "a\xc2\x9b", "a\xc0\xaf", "a\xe2"}) {
    config.local.run_dir = bad;
    EXPECT_THAT(CheckKey(Key("local.run_dir"), config),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("found the text \"a\\")));
  }
}

TEST(ConfigValuesTest, KnowsAddresses) {
  for (const char* good : {"h:1", "127.0.0.1:0", "a-b.c_d:65535", "[::1]:7070",
                           "[fe80::1%eth0]:1"}) {
    EXPECT_TRUE(IsAddress(good)) << good;
  }
  for (const char* bad : {"", ":", "h", "h:", ":1", "h:65536", "h:-1", "h:1x",
                          "::1:7070", "[::1]", "[]:1", "u@h:1", "h/p:1"}) {
    EXPECT_FALSE(IsAddress(bad)) << bad;
  }
}

TEST(ConfigValuesTest, NumbersArePrintedShort) {
  EXPECT_EQ(FormatNumber(30), "30");
  EXPECT_EQ(FormatNumber(0.1), "0.1");
  EXPECT_EQ(FormatNumber(0.0001), "0.0001");
  EXPECT_EQ(FormatNumber(1e6), "1000000");
  EXPECT_EQ(FormatNumber(0.00713), "0.00713");
  EXPECT_EQ(FormatNumber(5e-324), "5e-324");
}

}  // namespace
}  // namespace rivulet
