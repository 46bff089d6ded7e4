#include "compression/row_coder.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "compression/rice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/row_stream.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::RowStream;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

std::string Encode(const RowContext& context,
                   const std::vector<uint32_t>& positions) {
  std::string bytes;
  AppendRows(context, positions, &bytes);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()),
            RowCodeSize(context, positions));
  return bytes;
}

void ExpectRoundTrip(const RowContext& context,
                     const std::vector<uint32_t>& positions) {
  const std::string bytes = Encode(context, positions);
  for (const char* tail : {"", "0123456789abcdef"}) {
    std::vector<uint32_t> decoded(positions.size());
    size_t consumed = 0;
    RV_ASSERT_OK(
        DecodeRows(context, bytes + tail, absl::MakeSpan(decoded), &consumed));
    ASSERT_EQ(consumed, bytes.size());
    ASSERT_EQ(decoded, positions);
  }
}

// Row r's elements are sent with a chance of its own.
std::vector<uint32_t> RandomPositions(RandomStream& rng, int64_t size,
                                      const std::vector<double>& chance,
                                      int64_t columns, int64_t offset) {
  std::vector<uint32_t> positions;
  for (int64_t p = 0; p < size; ++p) {
    const auto row = static_cast<size_t>((p + offset) / columns);
    if (rng.UniformDouble() < chance[row]) {
      positions.push_back(static_cast<uint32_t>(p));
    }
  }
  return positions;
}

TEST(RowCoderTest, RandomMatricesAndRangesRoundTrip) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomStream rng(seed, RandomPurpose::kTest);
    const int64_t columns = 1 + rng.UniformInt(seed % 3 == 0 ? 3 : 100);
    const int64_t offset = rng.UniformInt(static_cast<uint32_t>(columns));
    const int64_t size = 1 + rng.UniformInt(5000);
    RowContext context(size, columns, offset);
    EXPECT_EQ(context.rows(), (size + offset + columns - 1) / columns);
    std::vector<double> chance(static_cast<size_t>(context.rows()));
    for (double& c : chance) {
      c = std::pow(rng.UniformDouble(), seed % 2 == 0 ? 8 : 1);
    }
    for (int message = 0; message < 15; ++message) {
      const auto positions =
          RandomPositions(rng, size, chance, columns, offset);
      ExpectRoundTrip(context, positions);
      context.Update(positions);
    }
    EXPECT_EQ(context.version(), 15u);
  }
}

TEST(RowCoderTest, ExtremeListsRoundTrip) {
  for (const int64_t columns : {1, 7, 300}) {
    const int64_t size = 300;
    RowContext context(size, columns, columns / 2);
    std::vector<uint32_t> all(static_cast<size_t>(size));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
    const std::vector<uint32_t> first = {0}, last = {299};
    std::vector<uint32_t> all_but_one = all;
    all_but_one.erase(all_but_one.begin() + 57);
    for (int round = 0; round < 4; ++round) {
      for (const auto& list :
           {std::vector<uint32_t>(), first, last, all_but_one, all}) {
        ExpectRoundTrip(context, list);
        context.Update(list);
      }
    }
    for (int i = 0; i < 3000; ++i) context.Update(all);
    ExpectRoundTrip(context, all);
    ExpectRoundTrip(context, first);
    // Half of the two rows of 300 is somebody else's.
    if (columns < 300) {
      EXPECT_LE(Encode(context, all).size(), 12u);
    }
    for (int i = 0; i < 3000; ++i) context.Update({});
    EXPECT_EQ(context.state().counts,
              std::vector<uint32_t>(static_cast<size_t>(context.rows()), 0));
    ExpectRoundTrip(context, all);
  }
}

TEST(RowCoderTest, TheLargestMatrixRoundTrips) {
  const int64_t size = 0xFFFFFFFF;
  RowContext context(size, 0xFFFF);
  const std::vector<uint32_t> positions = {0, 65534, 65535, 4294967294u};
  for (int i = 0; i < 3; ++i) {
    ExpectRoundTrip(context, positions);
    context.Update(positions);
  }
  RowContext one_row(size, size);
  ExpectRoundTrip(one_row, positions);
}

TEST(RowCoderTest, EmptyListsAndEmptyRangesTakeNoByte) {
  RowContext context(100, 10);
  EXPECT_EQ(Encode(context, {}), "");
  ExpectRoundTrip(context, {});
  RowContext empty(0, 10);
  EXPECT_EQ(empty.rows(), 0);
  empty.Update({});
  ExpectRoundTrip(empty, {});
}

TEST(RowCoderTest, SavesTwoBitsOnZipfRowsWithinThreePercentOfTheEntropy) {
  RowStream stream(10000, 64, 0.001, 1.0, /*seed=*/5);
  RowContext context(640000, 64);
  for (int i = 0; i < 300; ++i) context.Update(stream.Next());
  double bits = 0, count = 0;
  for (int i = 0; i < 10; ++i) {
    const auto positions = stream.Next();
    bits += 8.0 * static_cast<double>(RowCodeSize(context, positions));
    count += static_cast<double>(positions.size());
    context.Update(positions);
  }
  EXPECT_LT(bits / count, stream.Entropy() - 2) << "seed 5";
  EXPECT_LT(bits / count, 1.03 * stream.ConditionalEntropy());
}

TEST(RowCoderTest, CostsLittleWhereRowsAreAlike) {
  RowStream stream(10000, 64, 0.001, 0.0, /*seed=*/6);
  RowContext context(640000, 64);
  double rows = 0, rice = 0;
  for (int i = 0; i < 100; ++i) {
    const auto positions = stream.Next();
    rows += static_cast<double>(RowCodeSize(context, positions));
    rice += static_cast<double>(BestRice(positions, 0).num_bytes);
    context.Update(positions);
  }
  EXPECT_LT(rows, 1.005 * rice) << "seed 6";
}

TEST(RowCoderTest, BothEndsStayEqualOverAThousandMessages) {
  RowStream stream(300, 20, 0.02, 1.0, /*seed=*/8);
  RowContext sender(6000, 20), receiver(6000, 20);
  for (uint64_t message = 0; message < 1000; ++message) {
    SCOPED_TRACE(absl::StrCat("seed 8, message ", message));
    const auto positions = stream.Next();
    const std::string bytes = Encode(sender, positions);
    std::vector<uint32_t> decoded(positions.size());
    size_t consumed = 0;
    RV_ASSERT_OK(
        DecodeRows(receiver, bytes, absl::MakeSpan(decoded), &consumed));
    ASSERT_EQ(decoded, positions);
    sender.Update(positions);
    receiver.Update(decoded);
    ASSERT_EQ(sender.state().counts, receiver.state().counts);
    ASSERT_EQ(receiver.version(), message + 1);
  }
}

TEST(RowCoderTest, AStateContinuesInTheSameBytes) {
  RowStream stream(300, 20, 0.02, 1.0, /*seed=*/9);
  RowContext context(6000, 20);
  for (int i = 0; i < 50; ++i) context.Update(stream.Next());
  RowContext restored(6000, 20);
  RV_ASSERT_OK(restored.set_state(context.state()));
  EXPECT_EQ(restored.version(), 50u);
  for (int i = 0; i < 20; ++i) {
    const auto positions = stream.Next();
    ASSERT_EQ(Encode(restored, positions), Encode(context, positions));
    context.Update(positions);
    restored.Update(positions);
  }
}

TEST(RowCoderTest, AStateOfAnotherMatrixIsRefusedAndChangesNothing) {
  RowContext context(100, 10);
  context.Update(std::vector<uint32_t>{3, 4, 50});
  const RowContext::State before = context.state();
  RowContext::State state = before;
  state.counts.push_back(0);
  EXPECT_THAT(
      context.set_state(state),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("11 rows")));
  state = before;
  state.counts[7] = RowContext::kMaxCount + 1;
  EXPECT_THAT(context.set_state(state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 7")));
  EXPECT_EQ(context.state().counts, before.counts);
  EXPECT_EQ(context.version(), before.version);
  state.counts[7] = RowContext::kMaxCount;
  RV_EXPECT_OK(context.set_state(state));
  ExpectRoundTrip(context, {0, 70, 75, 99});
  std::vector<uint32_t> row(10);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = 70 + static_cast<uint32_t>(i);
  }
  context.Update(row);
  EXPECT_LE(context.state().counts[7], RowContext::kMaxCount);
}

// A context after some messages, and a code of one more.
class RowDecoderTest : public ::testing::Test {
 protected:
  RowDecoderTest()
      : stream_(200, 30, 0.05, 1.0, /*seed=*/10), context_(5950, 30, 20) {
    for (int i = 0; i < 30; ++i) context_.Update(Draw());
    positions_ = Draw();
    bytes_ = Encode(context_, positions_);
  }

  std::vector<uint32_t> Draw() {
    std::vector<uint32_t> positions;
    for (const uint32_t p : stream_.Next()) {
      if (p >= 20 && p < 5970) positions.push_back(p - 20);
    }
    return positions;
  }

  RowStream stream_;
  RowContext context_;
  std::vector<uint32_t> positions_;
  std::string bytes_;
};

TEST_F(RowDecoderTest, EveryCutIsRefused) {
  std::vector<uint32_t> decoded(positions_.size());
  for (size_t length = 0; length < bytes_.size(); ++length) {
    const std::vector<char> cut(bytes_.begin(), bytes_.begin() + length);
    size_t consumed = 0;
    EXPECT_THAT(DecodeRows(context_, absl::string_view(cut.data(), cut.size()),
                           absl::MakeSpan(decoded), &consumed),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST_F(RowDecoderTest, OtherCountsAreRefusedOrDecodeSomethingInRange) {
  size_t consumed = 0;
  std::vector<uint32_t> more(5951);
  EXPECT_THAT(DecodeRows(context_, bytes_, absl::MakeSpan(more), &consumed),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("5951 positions announced")));
  std::vector<uint32_t> nearly_all(5950);
  EXPECT_FALSE(
      DecodeRows(context_, bytes_, absl::MakeSpan(nearly_all), &consumed).ok());
}

TEST_F(RowDecoderTest, DamagedBytesEndAndStayInRange) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomStream rng(seed, RandomPurpose::kTest);
    std::vector<char> bytes(bytes_.begin(), bytes_.end());
    for (int flips = 0; flips < 3; ++flips) {
      bytes[rng.UniformInt(static_cast<uint32_t>(bytes.size()))] ^=
          static_cast<char>(1 << rng.UniformInt(8));
    }
    if (seed % 4 == 0) {
      for (char& c : bytes) c = static_cast<char>(rng.Next32());
    }
    std::vector<uint32_t> decoded(seed % 2 == 0 ? positions_.size()
                                                : rng.UniformInt(500));
    size_t consumed = 0;
    if (!DecodeRows(context_, absl::string_view(bytes.data(), bytes.size()),
                    absl::MakeSpan(decoded), &consumed)
             .ok()) {
      continue;
    }
    EXPECT_LE(consumed, bytes.size());
    int64_t next = 0;
    for (const uint32_t p : decoded) {
      ASSERT_GE(p, next);
      ASSERT_LT(p, context_.size());
      next = int64_t{p} + 1;
    }
  }
}

TEST(RowDecoderErrorTest, SlotsOutsideTheRangeAreRefused) {
  // Ten columns, of which the range lacks the first three and the last two.
  RowContext whole(20, 10), part(15, 10, 3);
  for (const uint32_t p : {2u, 18u}) {
    std::string bytes;
    AppendRows(whole, std::vector<uint32_t>{p}, &bytes);
    uint32_t decoded[1];
    size_t consumed = 0;
    EXPECT_THAT(DecodeRows(part, bytes, decoded, &consumed),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr(absl::StrCat("position ",
                                                static_cast<int>(p) - 3))));
  }
}

TEST(RowDecoderErrorTest, PaddingAndParametersAreChecked) {
  RowContext context(20, 10);
  std::string bytes = Encode(context, {0});
  uint32_t decoded[1];
  size_t consumed = 0;
  ASSERT_EQ(bytes.size(), 1u);
  bytes[0] = static_cast<char>(bytes[0] | 0x80);
  EXPECT_THAT(
      DecodeRows(context, bytes, decoded, &consumed),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("padding")));
  const std::string ones(40, '\xFF');
  EXPECT_THAT(
      DecodeRows(context, ones, decoded, &consumed),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parameter")));
}

}  // namespace
}  // namespace rivulet
