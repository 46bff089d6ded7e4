#include "common/daemon/digest.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::WriteFile;
using ::testing::HasSubstr;

// FIPS 180-2's examples.
TEST(DigestTest, AgreesWithTheStandard) {
  EXPECT_EQ(Sha256Hex(""),
            "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67"
            "f1809a48a497200e046d39ccc7112cd0");
}

TEST(DigestTest, AFileHasTheDigestOfItsBytes) {
  const TempFolder folder;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{1} << 20) + 1}) {
    const std::string bytes(size, 'x');
    WriteFile(folder.File("f"), bytes);
    EXPECT_THAT(Sha256HexOfFile(folder.File("f")),
                IsOkAndHolds(Sha256Hex(bytes)));
  }
}

TEST(DigestTest, AMissingFileIsNamed) {
  EXPECT_THAT(
      Sha256HexOfFile("/nonexistent/f"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/f")));
}

TEST(DigestTest, JobsDiffer) {
  EXPECT_EQ(NewJobId().size(), 32u);
  EXPECT_NE(NewJobId(), NewJobId());
}

}  // namespace
}  // namespace rivulet
