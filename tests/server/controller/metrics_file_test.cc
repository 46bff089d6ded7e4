#include "server/controller/metrics_file.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::HasSubstr;

MetricsRow Row(int64_t step) {
  MetricsRow row;
  row.seconds = 1.5;
  row.step = step;
  row.epoch = 0.25;
  row.train_loss = 2.5;
  row.train_accuracy = 0.125;
  row.samples_per_second = 100;
  row.totals.bytes_up = 12345678901;
  row.totals.bytes_down = 2;
  row.totals.payload_up = 3;
  row.totals.payload_down = 4;
  row.ratio = 20.5;
  return row;
}

TEST(MetricsFileTest, AMetricsLineHasAColumnForEachNameInTheHeader) {
  EXPECT_EQ(MetricsHeader(),
            "seconds,step,epoch,train_loss,train_accuracy,test_loss,"
            "test_accuracy,samples_per_second,bytes_up,bytes_down,payload_up,"
            "payload_down,ratio,voided");
  EXPECT_EQ(MetricsLine(Row(7)),
            "1.5,7,0.25,2.5,0.125,,,100,12345678901,2,3,4,20.5,0");
  MetricsRow row = Row(7);
  row.train_loss.reset();
  row.train_accuracy.reset();
  row.test = {.step = 7, .loss = 0.5, .accuracy = 0.75};
  EXPECT_EQ(MetricsLine(row),
            "1.5,7,0.25,,,0.5,0.75,100,12345678901,2,3,4,20.5,0");
}

TEST(MetricsFileTest, AResumedRunKeepsTheRowsBeforeItsFirstStep) {
  const TempFolder folder;
  const std::string path = folder.File("metrics.csv");
  {
    RV_ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path, 0));
    for (int64_t step : {5, 10, 15}) RV_ASSERT_OK(file.Append(Row(step)));
  }
  WriteBytes(path, ReadBytes(path) + "1.5,20,0.2");  // cut by a crash
  RV_ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path, 10));
  RV_ASSERT_OK(file.Append(Row(12)));
  EXPECT_EQ(
      ReadBytes(path),
      absl::StrCat(MetricsHeader(), "\n", MetricsLine(Row(5)), "\n",
                   MetricsLine(Row(10)), "\n", MetricsLine(Row(12)), "\n"));
  RV_ASSERT_OK(MetricsFile::Open(path, 0).status());
  EXPECT_EQ(ReadBytes(path), absl::StrCat(MetricsHeader(), "\n"));
}

TEST(MetricsFileTest, NamesWhatIsInItsPlace) {
  const TempFolder folder;
  const std::string path = folder.File("metrics.csv");
  std::filesystem::create_directory(path);
  EXPECT_THAT(MetricsFile::Open(path, 5).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("metrics.csv: cannot read: Is a directory")));
  EXPECT_THAT(MetricsFile::Open(path, 0).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("metrics.csv: cannot put")));
}

TEST(MetricsFileTest, AFullDiskIsNamedWithItsReason) {
  if (!std::filesystem::is_character_file("/dev/full")) {
    GTEST_SKIP() << "no /dev/full here";
  }
  const TempFolder folder;
  const std::string path = folder.File("metrics.csv");
  RV_ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path, 0));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/full", path);
  EXPECT_THAT(file.Append(Row(1)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("metrics.csv: cannot write: No space left")));
}

}  // namespace
}  // namespace rivulet
