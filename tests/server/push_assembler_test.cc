#include "server/push_assembler.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "common/daemon/grpc_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

v1::Push Piece(uint64_t step, std::string data, bool commit = false) {
  v1::Push piece;
  piece.set_step(step);
  piece.set_data(std::move(data));
  if (commit) piece.mutable_commit()->set_samples(3);
  return piece;
}

TEST(PushAssemblerTest, JoinsPiecesAtTheCommitAndBeginsAnew) {
  PushAssembler assembler(100, 0);
  for (uint64_t step = 4; step < 6; ++step) {
    RV_ASSERT_OK_AND_ASSIGN(auto first, assembler.Add(Piece(step, "ab")));
    EXPECT_FALSE(first.has_value());
    RV_ASSERT_OK_AND_ASSIGN(auto empty, assembler.Add(Piece(step, "")));
    EXPECT_FALSE(empty.has_value());
    RV_ASSERT_OK_AND_ASSIGN(auto whole, assembler.Add(Piece(step, "cd", true)));
    ASSERT_TRUE(whole.has_value());
    EXPECT_EQ(whole->step, static_cast<int64_t>(step));
    EXPECT_EQ(whole->bytes, "abcd");
    EXPECT_EQ(whole->commit.samples(), 3u);
  }
}

TEST(PushAssemblerTest, TakesACommitAlone) {
  PushAssembler assembler(0, 0);
  RV_ASSERT_OK_AND_ASSIGN(auto whole, assembler.Add(Piece(0, "", true)));
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->bytes, "");
}

TEST(PushAssemblerTest, RefusesWhatGoesBeyondTheLimitByOneByte) {
  PushAssembler assembler(4, 0);
  RV_ASSERT_OK(assembler.Add(Piece(0, "abcd")).status());
  EXPECT_THAT(assembler.Add(Piece(0, "e", true)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 4 bytes")));
}

TEST(PushAssemblerTest, RefusesAPieceAboveTheChunkSize) {
  PushAssembler assembler(100 << 20, 0);
  EXPECT_THAT(
      assembler.Add(Piece(0, std::string(kChunkBytes + 1, 'x'))).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048576")));
}

TEST(PushAssemblerTest, RefusesStepsThatMixOrCannotBe) {
  PushAssembler assembler(100, 0);
  RV_ASSERT_OK(assembler.Add(Piece(3, "a")).status());
  EXPECT_THAT(assembler.Add(Piece(4, "b")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("step 4 inside step 3")));
  PushAssembler other(100, 0);
  EXPECT_THAT(
      other.Add(Piece(std::numeric_limits<uint64_t>::max(), "", true)).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no step")));
}

TEST(PushAssemblerTest, LimitsStatisticsApartFromPushes) {
  PushAssembler assembler(1000, 8);
  v1::Statistics piece;
  piece.set_step(2);
  piece.set_data("12345678");
  piece.set_last(true);
  RV_ASSERT_OK_AND_ASSIGN(auto whole, assembler.Add(v1::Statistics(piece)));
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->bytes, "12345678");
  piece.set_data("123456789");
  EXPECT_THAT(
      assembler.Add(v1::Statistics(piece)).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("statistics")));
}

}  // namespace
}  // namespace rivulet
