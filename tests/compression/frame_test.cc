#include "compression/frame.h"
#include "common/base/crc32c.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "compression/bit_io.h"
#include "compression/quantizer.h"
#include "compression/rice.h"
#include "compression/selector.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Mode = SegmentUpdate::Mode;

std::vector<float> Normal(uint64_t seed, int64_t n) {
  RandomStream rng(seed, RandomPurpose::kTest);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = static_cast<float>(rng.Normal());
  return values;
}

// `density` 1 is dense.
CompressedTensor Compressed(uint64_t seed, int64_t n, double density,
                            int bits) {
  const auto values = Normal(seed, n);
  CompressedTensor out;
  if (density >= 1) {
    QuantizeDense(values, bits, &out);
  } else {
    QuantizeSparse(values, SelectExact(values, TargetCount(n, density)), bits,
                   &out);
  }
  return out;
}

std::vector<float> DecodedDense(const CompressedTensor& tensor) {
  std::vector<float> dense(static_cast<size_t>(tensor.size), 0.0f);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    dense[tensor.Position(i)] = tensor.Decode(i);
  }
  return dense;
}

// A frame around `body`, its checksum right.
std::string FrameOf(const std::string& body) {
  std::string frame(1, static_cast<char>(kFrameVersion));
  AppendVarint(body.size(), &frame);
  frame += body;
  AppendLittleEndian(MaskedCrc32c(frame), 4, &frame);
  return frame;
}

std::string Body(std::initializer_list<int> bytes) {
  std::string body;
  for (const int b : bytes) body.push_back(static_cast<char>(b));
  return body;
}

constexpr uint8_t Layout(int positions, int values) {
  return static_cast<uint8_t>(positions << 2 | values);
}

// The worked example of compression/README.md, to the byte.
TEST(FrameTest, WorkedExampleOfTheReadme) {
  CompressedTensor sparse;
  sparse.size = 1000;
  sparse.value_bits = 8;
  sparse.positions = {3, 130, 131, 700};
  sparse.levels = {127, -5, 1, -127};
  sparse.steps = {0.5f};
  CompressedTensor dense;
  dense.size = 3;
  dense.dense = true;
  dense.value_bits = 8;
  dense.levels = {1, 0, -2};
  dense.steps = {0.25f};
  FrameEncoder encoder;
  encoder.Add(2, sparse, 0, 1000);
  encoder.Add(3, dense, 0, 3);
  EXPECT_EQ(absl::BytesToHexString(encoder.Finish()),
            "0115041c04003f06fc000f077ffb01810084803e0100fef4c0109b");
}

TEST(FrameTest, EveryLayoutAndSliceRoundTrips) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest, 1);
    const int64_t n = 1 + rng.UniformInt(3000);
    const double density =
        seed % 4 == 0 ? 1.0 : std::pow(10, -3 * rng.UniformDouble());
    const int bits = 8 << rng.UniformInt(3);
    const auto tensor = Compressed(seed, n, density, bits);

    // Cut at random multiples of the quantization block.
    std::vector<int64_t> cuts = {0, n};
    for (int i = 0; i < 3; ++i) {
      const int64_t cut = kQuantizationBlock * rng.UniformInt(12);
      if (cut > 0 && cut < n) cuts.push_back(cut);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<int64_t> table;
    std::vector<uint32_t> order;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      table.push_back(cuts[i + 1] - cuts[i]);
      order.push_back(static_cast<uint32_t>(i));
    }
    rng.Shuffle(absl::MakeSpan(order));

    FrameEncoder encoder;
    for (const uint32_t s : order) {
      encoder.Add(s, tensor, cuts[s], cuts[s + 1]);
    }
    const int64_t announced = encoder.size_bytes();
    const std::string bytes = encoder.Finish();
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), announced);
    EXPECT_TRUE(encoder.empty());

    RV_ASSERT_OK_AND_ASSIGN(const auto updates, DecodeFrames(bytes, table));
    std::vector<float> received(static_cast<size_t>(n), 0.0f);
    for (const SegmentUpdate& u : updates) {
      EXPECT_EQ(u.mode, tensor.dense ? Mode::kAddDense : Mode::kAddSparse);
      u.AddTo(1.0f, absl::MakeSpan(received).subspan(
                        static_cast<size_t>(cuts[u.segment]),
                        static_cast<size_t>(table[u.segment])));
    }
    EXPECT_EQ(received, DecodedDense(tensor));
  }
}

TEST(FrameTest, SegmentsAroundSixteenBitLengthsRoundTrip) {
  for (const int64_t n : {65535, 65536, 65537}) {
    for (const int bits : {8, 16, 32}) {
      for (const double density : {0.0005, 0.4, 1.0}) {
        SCOPED_TRACE(absl::StrCat(n, " ", bits, " ", density));
        auto tensor = Compressed(5, n, density, bits);
        FrameEncoder encoder;
        encoder.Add(0, tensor, 0, n);
        RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                                DecodeFrames(encoder.Finish(), {n}));
        ASSERT_THAT(updates, SizeIs(1));
        std::vector<float> received(static_cast<size_t>(n), 0.0f);
        updates[0].ApplyTo(absl::MakeSpan(received));
        EXPECT_EQ(received, DecodedDense(tensor));
      }
    }
  }
}

// Positions at the end of the largest segment; no memory of its
// size is needed.
TEST(FrameTest, PositionsBeyondThirtyOneBitsRoundTrip) {
  constexpr int64_t kSize = std::numeric_limits<uint32_t>::max();
  CompressedTensor tensor;
  tensor.size = kSize;
  tensor.positions = {2147483646u, 2147483647u, 2147483648u, 4294967294u};
  tensor.values = {1, 2, 3, 4};
  FrameEncoder encoder;
  encoder.Add(0, tensor, 0, kSize);
  const std::string bytes = encoder.Finish();
  EXPECT_LT(bytes.size(), 60u);
  RV_ASSERT_OK_AND_ASSIGN(const auto updates, DecodeFrames(bytes, {kSize}));
  EXPECT_EQ(updates[0].positions, tensor.positions);
  EXPECT_THAT(DecodeFrames(bytes, {kSize - 1}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("4294967294")));
}

TEST(FrameTest, ExactValuesReplace) {
  FrameEncoder encoder;
  encoder.AddExact(1, std::vector<float>{1.5f, -0.0f, 3e38f});
  RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                          DecodeFrames(encoder.Finish(), {7, 3}));
  ASSERT_THAT(updates, SizeIs(1));
  EXPECT_EQ(updates[0].mode, Mode::kReplace);
  EXPECT_EQ(updates[0].segment, 1u);
  std::vector<float> target = {9, 9, 9};
  updates[0].ApplyTo(absl::MakeSpan(target));
  EXPECT_THAT(target, ElementsAre(1.5f, -0.0f, 3e38f));
}

TEST(FrameTest, AddToScales) {
  SegmentUpdate sparse;
  sparse.positions = {1, 3};
  sparse.values = {2, -4};
  std::vector<float> target = {10, 10, 10, 10};
  sparse.AddTo(0.5f, absl::MakeSpan(target));
  EXPECT_THAT(target, ElementsAre(10, 11, 10, 8));
  sparse.ApplyTo(absl::MakeSpan(target));
  EXPECT_THAT(target, ElementsAre(10, 13, 10, 4));
}

TEST(FrameTest, ConcatenatedFramesDecodeInOrder) {
  const auto tensor = Compressed(1, 100, 0.1, 8);
  FrameEncoder encoder;
  std::string bytes;
  for (const uint32_t segment : {3u, 0u, 3u}) {
    encoder.Add(segment, tensor, 0, 100);
    bytes += encoder.Finish();
  }
  RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                          DecodeFrames(bytes, {100, 100, 100, 100}));
  ASSERT_THAT(updates, SizeIs(3));
  EXPECT_EQ(updates[0].segment, 3u);
  EXPECT_EQ(updates[1].segment, 0u);
  EXPECT_EQ(updates[2].segment, 3u);
}

TEST(FrameTest, EmptyFramesAndNoFramesAreLegal) {
  FrameEncoder encoder;
  EXPECT_TRUE(encoder.empty());
  EXPECT_EQ(encoder.size_bytes(), 6);
  const std::string bytes = encoder.Finish();
  EXPECT_THAT(bytes, SizeIs(6));
  EXPECT_THAT(DecodeFrames(bytes, {}), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(DecodeFrames("", {5}), IsOkAndHolds(IsEmpty()));
}

TEST(FrameTest, PartsWithoutSelectedElementsCostNothing) {
  CompressedTensor tensor;
  tensor.size = 100;
  tensor.positions = {50};
  tensor.values = {1};
  FrameEncoder encoder;
  encoder.Add(0, tensor, 0, 50);
  EXPECT_TRUE(encoder.empty());
  encoder.Add(1, tensor, 50, 100);
  RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                          DecodeFrames(encoder.Finish(), {50, 50}));
  ASSERT_THAT(updates, SizeIs(1));
  EXPECT_THAT(updates[0].positions, ElementsAre(0));
}

TEST(FrameTest, SmallerOfRiceAndBitmapIsChosen) {
  // One position in two, at random: a bitmap takes one bit an element,
  // Rice 1.5.
  RandomStream rng(9, RandomPurpose::kTest);
  CompressedTensor half;
  half.size = 8000;
  half.value_bits = 8;
  half.steps = {1.0f};
  for (uint32_t i = 0; i < 8000; ++i) {
    if (rng.UniformInt(2) == 0) continue;
    half.positions.push_back(i);
    half.levels.push_back(1);
  }
  FrameEncoder encoder;
  encoder.Add(0, half, 0, 8000);
  EXPECT_EQ(encoder.size_bytes(),
            1 + 2 + 1 + 1 + 2 + 1000 +
                static_cast<int64_t>(half.positions.size()) + 4);
}

// The size of a push that the format is made for: 60 segments of a ResNet-20 at
// 0.1 %. Beyond values (a byte each) and the bits of the positions, a segment
// costs its number, its layout, its count and a step of two bytes, and half a
// byte of padding.
TEST(FrameTest, NoFrameIsLargerThanItsBound) {
  EXPECT_EQ(MaxFrameBytes(0), 65536);
  EXPECT_EQ(MaxFrameBytes(1600), 4 * 1600 + 4 * 100 + 65536);
  EXPECT_EQ(MaxFrameBytes(int64_t{1} << 40),
            (int64_t{17} << 38) + 65536);  // beyond 32 bits
  // The worst that plans allow: just not dense, at 32 bits, and small segments.
  constexpr int64_t kSize = 4000;
  for (const double density : {0.5, 0.999, 1.0}) {
    const CompressedTensor tensor = Compressed(5, kSize, density, 32);
    FrameEncoder encoder;
    for (uint32_t segment = 0; segment < 500; ++segment) {
      encoder.Add(2 * segment, tensor, 0, kSize);
    }
    EXPECT_LE(encoder.size_bytes(), MaxFrameBytes(500 * kSize)) << density;
  }
}

TEST(FrameTest, SegmentsCostFewBytesOfHeader) {
  FrameEncoder encoder;
  int64_t payload = 0;
  for (uint32_t s = 0; s < 60; ++s) {
    const auto tensor = Compressed(s, 5000, 0.001, 8);
    payload += BestRice(tensor.positions, 0).num_bytes + tensor.count() + 2;
    encoder.Add(s, tensor, 0, 5000);
  }
  EXPECT_LE(encoder.size_bytes() - payload, 60 * 3 + 8);
}

std::string MixedFrame(std::vector<int64_t>* table) {
  *table = {300, 300, 300, 4, 300};
  FrameEncoder encoder;
  encoder.Add(0, Compressed(1, 300, 0.02, 8), 0, 300);
  encoder.Add(2, Compressed(2, 300, 0.4, 16), 0, 300);
  encoder.Add(1, Compressed(3, 300, 1.0, 8), 0, 300);
  encoder.AddExact(3, std::vector<float>{1, 2, 3, 4});
  encoder.Add(4, Compressed(4, 300, 0.05, 32), 0, 300);
  return encoder.Finish();
}

TEST(FrameTest, EveryFlippedBitIsAnError) {
  std::vector<int64_t> table;
  const std::string bytes = MixedFrame(&table);
  RV_ASSERT_OK(DecodeFrames(bytes, table));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    // Damage to the version's byte reads as another version.
    EXPECT_THAT(DecodeFrames(damaged, table),
                StatusIs(bit < 8 ? absl::StatusCode::kUnimplemented
                                 : absl::StatusCode::kDataLoss))
        << "bit " << bit;
  }
}

TEST(FrameTest, CutsAtEveryByteAreErrors) {
  std::vector<int64_t> table;
  const std::string bytes = MixedFrame(&table);
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeFrames(bytes.substr(0, size), table),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
}

// The same with checksums that are right: a peer that cuts what it sends.
TEST(FrameTest, BodiesCutAtEveryByteAreErrorsUnlessASegmentEndsThere) {
  std::vector<int64_t> table;
  const std::string bytes = MixedFrame(&table);
  const std::string body = bytes.substr(3, bytes.size() - 3 - 4);
  int whole = 0;
  for (size_t size = 0; size < body.size(); ++size) {
    const auto updates = DecodeFrames(FrameOf(body.substr(0, size)), table);
    if (updates.ok()) {
      ++whole;
    } else {
      EXPECT_EQ(updates.status().code(), absl::StatusCode::kInvalidArgument)
          << updates.status();
    }
  }
  EXPECT_EQ(whole, 5);  // after 0 to 4 of the 5 segments
  EXPECT_THAT(DecodeFrames(FrameOf(body + "x"), table), Not(IsOk()));
}

// Random bodies with right checksums: whatever they hold, what comes out keeps
// the promises of SegmentUpdate.
TEST(FrameTest, RandomBodiesNeverBreakThePromises) {
  std::vector<int64_t> table;
  const std::string bytes = MixedFrame(&table);
  const std::string good = bytes.substr(3, bytes.size() - 3 - 4);
  int accepted = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest);
    std::string body = good;
    const uint32_t edits = 1 + rng.UniformInt(4);
    for (uint32_t e = 0; e < edits; ++e) {
      body[rng.UniformInt(static_cast<uint32_t>(body.size()))] =
          static_cast<char>(rng.UniformInt(256));
    }
    const auto updates = DecodeFrames(FrameOf(body), table);
    if (!updates.ok()) continue;
    ++accepted;
    for (const SegmentUpdate& u : *updates) {
      ASSERT_LT(u.segment, table.size());
      const size_t n = static_cast<size_t>(table[u.segment]);
      for (const float v : u.values) ASSERT_TRUE(std::isfinite(v));
      if (u.mode == Mode::kAddSparse) {
        ASSERT_EQ(u.values.size(), u.positions.size());
        for (size_t i = 0; i < u.positions.size(); ++i) {
          ASSERT_LT(u.positions[i], n);
          if (i > 0) {
            ASSERT_LT(u.positions[i - 1], u.positions[i]);
          }
        }
      } else {
        ASSERT_EQ(u.values.size(), n);
      }
    }
  }
  EXPECT_GT(accepted, 100);  // most edits hit a value: the test sees both sides
}

struct Forgery {
  const char* what;
  std::string body;
  absl::StatusCode code;
  const char* message;
};

TEST(FrameTest, ForgedBodiesAreRefusedForTheRightReason) {
  using Code = absl::StatusCode;
  const int rice0 = Layout(0, 0), bitmap = Layout(32, 0), dense = Layout(33, 0);
  const int dense16 = Layout(33, 1), dense32 = Layout(33, 2);
  const Forgery forgeries[] = {
      {"segment beyond the table", Body({10, rice0, 1, 0x80, 0x3F, 0, 1}),
       Code::kOutOfRange, "segment 5; there are 2"},
      {"negative segment", Body({1, rice0, 1, 0x80, 0x3F, 0, 1}),
       Code::kOutOfRange, "segment -1"},
      {"segment beyond 32 bits",
       Body({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, rice0}),
       Code::kOutOfRange, "32 bits"},
      {"segment twice",
       Body({0, rice0, 1, 0x80, 0x3F, 0, 1, 1, rice0, 1, 0x80, 0x3F, 0, 1}),
       Code::kInvalidArgument, "twice"},
      {"long varint", Body({0x80, 0x00, rice0, 1, 0x80, 0x3F, 0, 1}),
       Code::kInvalidArgument, "segment number"},
      {"unknown value width", Body({0, Layout(33, 3)}), Code::kInvalidArgument,
       "layout"},
      {"unknown positions", Body({0, Layout(35, 0)}), Code::kInvalidArgument,
       "layout"},
      {"replacing with levels", Body({0, Layout(34, 0), 0, 0}),
       Code::kInvalidArgument, "layout"},
      {"no positions", Body({0, rice0, 0, 0x80, 0x3F}), Code::kInvalidArgument,
       "without a position"},
      {"forged count",
       Body({0, rice0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x80, 0x3F, 0, 1}),
       Code::kInvalidArgument, "positions announced"},
      {"position beyond the segment", Body({0, rice0, 1, 0x80, 0x3F, 0x1F, 1}),
       Code::kOutOfRange, "position 5 in a segment of 5"},
      {"padding", Body({0, rice0, 1, 0x80, 0x3F, 0x80, 1}),
       Code::kInvalidArgument, "padding"},
      {"bit beyond the segment", Body({0, bitmap, 0x80, 0x3F, 0x20, 1}),
       Code::kOutOfRange, "position 5 in a segment of 5"},
      {"empty bitmap", Body({0, bitmap, 0x80, 0x3F, 0}), Code::kInvalidArgument,
       "without a position"},
      {"fewer values than positions", Body({0, bitmap, 0x80, 0x3F, 0x1F, 1, 2}),
       Code::kInvalidArgument,
       "5 positions announced, but 2 bytes are left for their values"},
      {"negative step", Body({0, rice0, 1, 0x80, 0xBF, 0, 1}),
       Code::kInvalidArgument, "step"},
      {"infinite step", Body({0, dense, 0x80, 0x7F, 1, 1, 1, 1, 1}),
       Code::kInvalidArgument, "step"},
      {"step that overflows", Body({0, dense, 0x7F, 0x7F, 1, 1, 1, 1, 2}),
       Code::kInvalidArgument, "value 4 is not finite"},
      {"level -128", Body({0, dense, 0x80, 0x3F, 1, 1, 1, 1, 0x80}),
       Code::kInvalidArgument, "-127 to 127"},
      {"level -32768",
       Body({0, dense16, 0x80, 0x3F, 0, 0x80, 1, 1, 1, 1, 1, 1, 1, 1}),
       Code::kInvalidArgument, "-32767 to 32767"},
      {"NaN", Body({0, dense32, 0, 0, 0xC0, 0x7F, 0, 0, 0, 0, 0,
                    0, 0,       0, 0, 0,    0,    0, 0, 0, 0, 0}),
       Code::kInvalidArgument, "value 0 is not finite"},
      {"trailing byte", Body({0, rice0, 1, 0x80, 0x3F, 0, 1, 0}),
       Code::kInvalidArgument, "layout is cut off"},
      {"segment without elements", Body({2, bitmap, 0x80, 0x3F}),
       Code::kInvalidArgument, "without elements"},
  };
  for (const Forgery& f : forgeries) {
    EXPECT_THAT(DecodeFrames(FrameOf(f.body), {5, 0}),
                StatusIs(f.code, HasSubstr(f.message)))
        << f.what;
  }
  // The plain form of what is forged above is accepted.
  EXPECT_THAT(
      DecodeFrames(FrameOf(Body({0, rice0, 1, 0x80, 0x3F, 0, 1})), {5, 0}),
      IsOk());
}

TEST(FrameTest, OtherVersionsAreNamed) {
  std::string bytes = FrameOf("");
  bytes[0] = 2;
  EXPECT_THAT(
      DecodeFrames(bytes, {}),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 2")));
}

TEST(FrameTest, ForgedLengthIsACutFrame) {
  // 2^62 bytes announced.
  std::string bytes = "\x01\x80\x80\x80\x80\x80\x80\x80\x80\x40";
  EXPECT_THAT(DecodeFrames(bytes, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut off")));
}

TEST(FrameTest, SameInputGivesTheSameBytes) {
  std::vector<int64_t> table;
  EXPECT_EQ(MixedFrame(&table), MixedFrame(&table));
}

TEST(FrameDeathTest, DiesIfTheSenderMisusesIt) {
  const auto dense = Compressed(1, 600, 1.0, 8);
  FrameEncoder encoder;
  EXPECT_DEATH(encoder.Add(0, dense, 100, 600), "kQuantizationBlock");
  EXPECT_DEATH(encoder.Add(0, dense, 256, 601), "601");
  encoder.Add(0, dense, 0, 256);
  EXPECT_DEATH(encoder.Add(0, dense, 256, 512), "already");
  CompressedTensor odd_step = dense;
  odd_step.steps[0] = 0.1f;
  EXPECT_DEATH(encoder.Add(1, odd_step, 0, 600), "bfloat16");
}

}  // namespace
}  // namespace rivulet
