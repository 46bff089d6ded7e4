#include "common/daemon/text_file.h"

#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteBytes;

TEST(TextFileTest, GivesEveryByte) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  for (const std::string& text :
       {std::string(), std::string("a\n\0b", 4), std::string(100000, 'x')}) {
    WriteBytes(path, text);
    EXPECT_THAT(ReadTextFile(path), IsOkAndHolds(text));
  }
}

TEST(TextFileTest, NamesThePathAndTheReason) {
  const TempFolder folder;
  const std::string path = folder.File("none");
  EXPECT_THAT(ReadTextFile(path).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       path + ": cannot open: No such file or directory "
                              "(errno 2)"));
  EXPECT_THAT(ReadTextFile(folder.path()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       folder.path() + ": cannot read: Is a directory "
                                       "(errno 21)"));
}

}  // namespace
}  // namespace rivulet
