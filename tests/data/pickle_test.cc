#include "data/pickle.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/file_builders.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::CifarPickle;
using ::rivulet::testing::PickleContents;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PickleContents Small() {
  return {.labels = {3, 9}, .rows = 2, .columns = 3, .data = "abcdef"};
}

auto IsRefused(const std::string& reason) {
  return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(reason));
}

// The small example with one part replaced, which must occur.
std::string Changed(absl::string_view from, absl::string_view to) {
  const std::string original = CifarPickle(Small());
  const std::string changed = absl::StrReplaceAll(original, {{from, to}});
  EXPECT_NE(changed, original) << "nothing to replace";
  return changed;
}

TEST(PickleTest, ReadsLabelsAndData) {
  const std::string bytes = CifarPickle(Small());
  RV_ASSERT_OK_AND_ASSIGN(const PickledBatch batch, ReadPickledBatch(bytes));
  EXPECT_THAT(batch.labels, ElementsAre(3, 9));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.columns, 3);
  EXPECT_FALSE(batch.column_major);
  EXPECT_EQ(batch.data, "abcdef");
}

TEST(PickleTest, TellsFortranOrder) {
  PickleContents contents = Small();
  contents.column_major = true;
  const std::string bytes = CifarPickle(contents);
  RV_ASSERT_OK_AND_ASSIGN(const PickledBatch batch, ReadPickledBatch(bytes));
  EXPECT_TRUE(batch.column_major);
}

TEST(PickleTest, EveryCutIsNoticed) {
  const std::string bytes = CifarPickle(Small());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ReadPickledBatch(absl::string_view(bytes).substr(0, size)),
                IsRefused("not a CIFAR-10 pickle"))
        << size;
  }
  EXPECT_THAT(ReadPickledBatch(bytes.substr(0, bytes.size() - 1)),
              IsRefused("cut, 1 bytes expected, 0 found"));
}

TEST(PickleTest, BytesAfterTheEndAreNoticed) {
  EXPECT_THAT(ReadPickledBatch(CifarPickle(Small()) + "."),
              IsRefused("bytes after the end"));
}

TEST(PickleTest, RefusesOtherContents) {
  EXPECT_THAT(ReadPickledBatch("<!DOCTYPE html>"),
              IsRefused("no protocol mark at byte 0"));
  EXPECT_THAT(ReadPickledBatch("\x80\x03}."), IsRefused("protocol 3"));
  EXPECT_THAT(ReadPickledBatch("\x80\x02N."),
              IsRefused("it holds no dictionary"));
  EXPECT_THAT(ReadPickledBatch("\x80\x02}."),
              IsRefused("it lacks \"data\" or \"labels\""));
  EXPECT_THAT(ReadPickledBatch(Changed("labels", "labelx")),
              IsRefused("it lacks"));
  EXPECT_THAT(ReadPickledBatch(Changed("u1", "f4")),
              IsRefused("not of type uint8"));
  EXPECT_THAT(ReadPickledBatch(Changed("_reconstruct", "_reconstrict")),
              IsRefused("no numpy array"));
  EXPECT_THAT(ReadPickledBatch(Changed("cnumpy\ndtype", "cnumpy\nfinfo")),
              IsRefused("not of type uint8"));
}

TEST(PickleTest, CallsNothing) {
  EXPECT_THAT(ReadPickledBatch("\x80\x02"
                               "cposix\nsystem\nU\x04true\x85R."),
              IsRefused("it holds no dictionary"));
}

TEST(PickleTest, RefusesADataSizeThatDoesNotFitTheShape) {
  PickleContents contents = Small();
  contents.data = "abcde";
  EXPECT_THAT(ReadPickledBatch(CifarPickle(contents)),
              IsRefused("has 5 bytes for a shape of [2, 3]"));
}

TEST(PickleTest, RefusesUnknownInstructionsByPosition) {
  EXPECT_THAT(ReadPickledBatch("\x80\x02X."),
              IsRefused("unexpected instruction 0x58 at byte 2"));
}

TEST(PickleTest, RefusesInstructionsWithoutOperands) {
  for (const absl::string_view program :
       {"e",    "u",    "t",    "s",     "a",     "b",  "R",
        "\x85", "\x86", "\x87", "q\x01", "h\x01", "(R", "(N\x86",
        "NNs",  "Na",   "N(e",  "}(Nu",  "N(",    "."}) {
    EXPECT_THAT(ReadPickledBatch(absl::StrCat("\x80\x02", program, ".")),
                IsRefused("not a CIFAR-10 pickle"))
        << program;
  }
}

TEST(PickleTest, LimitsStackProgramAndNames) {
  const auto repeated = [](absl::string_view what, int times) {
    std::string program = "\x80\x02";
    for (int i = 0; i < times; ++i) absl::StrAppend(&program, what);
    return program + ".";
  };
  EXPECT_THAT(ReadPickledBatch(repeated("N", 70000)),
              IsRefused("too deep a stack"));
  EXPECT_THAT(ReadPickledBatch(repeated("(t\x85(NNt", 60000)),
              IsRefused("too deep a stack"));
  EXPECT_THAT(ReadPickledBatch(repeated("\x80\x02", 300000)),
              IsRefused("too long a program"));
  EXPECT_THAT(ReadPickledBatch("\x80\x02"
                               "c" +
                               std::string(1000, 'x')),
              IsRefused("a name without end"));
  std::string memo = "\x80\x02N";
  for (uint32_t i = 0; i < 70000; ++i) {
    absl::StrAppend(&memo, "r", ::rivulet::testing::LittleEndian(i, 4));
  }
  EXPECT_THAT(ReadPickledBatch(memo), IsRefused("too large a memo"));
}

TEST(PickleTest, ContainersThatHoldThemselvesAreHarmless) {
  // A list appended to itself by way of the memo.
  EXPECT_THAT(ReadPickledBatch("\x80\x02]q\x01h\x01"
                               "a."),
              IsRefused("it holds no dictionary"));
}

}  // namespace
}  // namespace rivulet
