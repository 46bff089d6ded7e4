#include "models/checkpoint/atomic_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/checkpoint/tensor_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::ReadBytes;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

int FilesIn(const std::string& folder) {
  int files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder)) {
    ++files;
  }
  return files;
}

// While it lives, writing beyond `bytes` of a file fails with EFBIG: a disk
// that fills up.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &saved_);
    handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, saved_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &saved_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit saved_;
  void (*handler_)(int);
};

TEST(AtomicFileTest, CreatesAndReplaces) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  EXPECT_THAT(WriteFileAtomically(path, "first"), IsOk());
  EXPECT_EQ(ReadBytes(path), "first");
  EXPECT_THAT(WriteFileAtomically(path, ""), IsOk());
  EXPECT_EQ(ReadBytes(path), "");
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

TEST(AtomicFileTest, NothingIsSeenBeforeTheCommit) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  WriteBytes(path, "old");
  {
    RV_ASSERT_OK_AND_ASSIGN(const auto file, AtomicFile::Create(path));
    EXPECT_THAT(file->Append("new"), IsOk());
    EXPECT_EQ(ReadBytes(path), "old");
  }
  EXPECT_EQ(ReadBytes(path), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1) << "the temporary file was left";
}

TEST(AtomicFileTest, KeepsTheTargetWhenWritingFails) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  WriteBytes(path, "old");
  absl::Status status;
  {
    const FileSizeLimit limit(1000);
    status = WriteFileAtomically(path, std::string(5000, 'x'));
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path + ".tmp."), HasSubstr(": cannot write: "),
                    HasSubstr("errno 27")));
  EXPECT_EQ(ReadBytes(path), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

TEST(AtomicFileTest, NamesAFolderThatCannotBeWritten) {
  const TempFolder folder;
  EXPECT_THAT(WriteFileAtomically(folder.File("missing/a"), "x"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(folder.File("missing/a.tmp")),
                             HasSubstr("errno 2"))));
  WriteBytes(folder.File("file"), "");
  EXPECT_THAT(
      WriteFileAtomically(folder.File("file/a"), "x"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("errno 20")));
  // Not even root creates files there.
  EXPECT_FALSE(WriteFileAtomically("/proc/rivulet_test", "x").ok());
}

TEST(AtomicFileTest, NamesATargetThatIsAFolder) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.File("a"));
  const absl::Status status = WriteFileAtomically(folder.File("a"), "x");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(folder.File("a") +
                        ": cannot put a temporary file in its place"));
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

TEST(AtomicFileTest, WritersOfOneTargetDoNotMix) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&path, t] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_THAT(WriteFileAtomically(
                        path, std::string(10000, static_cast<char>('a' + t))),
                    IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string bytes = ReadBytes(path);
  ASSERT_EQ(bytes.size(), 10000u);
  EXPECT_EQ(bytes, std::string(10000, bytes[0]));
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

TEST(AtomicFileTest, KnowsItsTemporaryFilesByTheirNames) {
  const TempFolder folder;
  RV_ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(folder.File("a.json")));
  int unfinished = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_TRUE(IsUnfinishedFile(entry.path().filename().string()))
        << entry.path();
    ++unfinished;
  }
  EXPECT_EQ(unfinished, 1);
  for (const char* name : {"a.json", "a.tmp", "a.tmp.1", "a.tmp.1.", ".tmp.1.2",
                           "a.tmp.1.x", "a.tmp.1.2.3", ""}) {
    EXPECT_FALSE(IsUnfinishedFile(name)) << name;
  }
}

}  // namespace
}  // namespace rivulet
