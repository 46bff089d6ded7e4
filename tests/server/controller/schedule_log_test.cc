#include "server/controller/schedule_log.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::ScheduleEntry Stop(const std::string& reason) {
  v1::ScheduleEntry entry;
  entry.mutable_stop()->set_reason(reason);
  return entry;
}

// A log of three entries of different lengths; returns its bytes.
std::string MakeLog(const std::string& path) {
  auto log = ScheduleLog::Open(path);
  RV_CHECK(log.ok()) << log.status().ToString();
  for (const char* reason : {"first", "the second", "3"}) {
    auto kept = (*log)->Append(Stop(reason));
    RV_CHECK(kept.ok()) << kept.status().ToString();
  }
  return ReadBytes(path);
}

TEST(ScheduleLogTest, NumbersEntriesAndKeepsThem) {
  const TempFolder folder;
  const std::string path = folder.File("schedule.log");
  {
    RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
    EXPECT_TRUE(log->entries().empty());
    RV_ASSERT_OK_AND_ASSIGN(auto first, log->Append(Stop("a")));
    EXPECT_EQ(first.seq(), 1u);
    EXPECT_EQ(first.stop().reason(), "a");
  }
  RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
  ASSERT_EQ(log->entries().size(), 1u);
  EXPECT_EQ(log->entries()[0].stop().reason(), "a");
  RV_ASSERT_OK_AND_ASSIGN(auto second, log->Append(Stop("b")));
  EXPECT_EQ(second.seq(), 2u);
  RV_ASSERT_OK_AND_ASSIGN(auto reopened, ScheduleLog::Open(path));
  EXPECT_EQ(reopened->entries().size(), 2u);
}

TEST(ScheduleLogTest, SurvivesACutAtAnyByteAndGoesOn) {
  const TempFolder folder;
  const std::string whole = MakeLog(folder.File("whole"));
  const std::string path = folder.File("cut");
  size_t before = 0;
  for (size_t size = 0; size <= whole.size(); ++size) {
    SCOPED_TRACE(absl::StrCat("cut at byte ", size, " of ", whole.size()));
    WriteBytes(path, whole.substr(0, size));
    RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
    const size_t kept = log->entries().size();
    EXPECT_GE(kept, before) << "more bytes, not fewer entries";
    before = kept;
    RV_ASSERT_OK_AND_ASSIGN(auto next, log->Append(Stop("next")));
    EXPECT_EQ(next.seq(), kept + 1);
    RV_ASSERT_OK_AND_ASSIGN(auto reopened, ScheduleLog::Open(path));
    ASSERT_EQ(reopened->entries().size(), kept + 1);
    EXPECT_EQ(reopened->entries().back().stop().reason(), "next");
  }
  EXPECT_EQ(before, 3u);
}

TEST(ScheduleLogTest, NamesDamageBeforeTheEnd) {
  const TempFolder folder;
  const std::string whole = MakeLog(folder.File("whole"));
  const std::string path = folder.File("damaged");
  std::string bytes = whole;
  bytes[8 + 12 + 3] ^= 1;  // in the payload of the first record
  WriteBytes(path, bytes);
  EXPECT_THAT(ScheduleLog::Open(path).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("record 1 at byte 8: wrong checksum")));
  bytes = whole;
  bytes[8 + 3] = '\x7f';  // the length's highest byte
  WriteBytes(path, bytes);
  EXPECT_THAT(
      ScheduleLog::Open(path).status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("impossible length")));
  WriteBytes(path, "something else altogether");
  EXPECT_THAT(
      ScheduleLog::Open(path).status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not a schedule log")));
}

TEST(ScheduleLogTest, NamesALengthThatIsDamagedButPossible) {
  const TempFolder folder;
  const std::string path = folder.File("log");
  std::string bytes = MakeLog(path);
  bytes[8 + 1] ^= 1;  // 256 more or less: beyond the end, or into a record
  WriteBytes(path, bytes);
  EXPECT_THAT(ScheduleLog::Open(path).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 1")));
}

TEST(ScheduleLogTest, DropsATailOfZeros) {
  const TempFolder folder;
  const std::string path = folder.File("log");
  const std::string whole = MakeLog(path);
  for (const size_t zeros : {1, 8, 12, 13, 40, 4096}) {
    SCOPED_TRACE(zeros);
    WriteBytes(path, whole + std::string(zeros, '\0'));
    RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
    EXPECT_EQ(log->entries().size(), 3u);
  }
}

TEST(ScheduleLogTest, DropsADamagedLastRecord) {
  const TempFolder folder;
  const std::string path = folder.File("log");
  std::string bytes = MakeLog(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteBytes(path, bytes);
  RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
  EXPECT_EQ(log->entries().size(), 2u);
}

TEST(ScheduleLogTest, NamesAFolderThatIsNotThere) {
  const TempFolder folder;
  EXPECT_THAT(ScheduleLog::Open(folder.File("no/log")).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no/log"), HasSubstr("cannot create"))));
}

TEST(ScheduleLogTest, NamesAFolderInItsPlace) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.File("log"));
  EXPECT_THAT(ScheduleLog::Open(folder.File("log")).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("log: cannot open: Is a directory")));
}

TEST(ScheduleLogTest, RefusesAnEntryThatItCouldNotReadBack) {
  const TempFolder folder;
  const std::string path = folder.File("log");
  {
    RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
    RV_ASSERT_OK(log->Append(Stop("a")).status());
    EXPECT_THAT(log->Append(Stop(std::string(1 << 20, 'x'))).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("at most 1048576")));
    RV_ASSERT_OK(log->Append(Stop("b")).status());
  }
  RV_ASSERT_OK_AND_ASSIGN(auto log, ScheduleLog::Open(path));
  ASSERT_EQ(log->entries().size(), 2u);
  EXPECT_EQ(log->entries()[1].stop().reason(), "b");
}

}  // namespace
}  // namespace rivulet
