#include "compression/frame.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "compression/bit_io.h"
#include "compression/frame_description.h"
#include "compression/frame_format.h"
#include "compression/rice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Decoded;
using ::rivulet::testing::IsOk;
using ::rivulet::testing::IsOkAndHolds;
using ::rivulet::testing::NormalVector;
using ::rivulet::testing::Quantized;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Mode = SegmentUpdate::Mode;

// `density` 1 is dense.
CompressedTensor Compressed(uint64_t seed, int64_t n, double density,
                            int bits) {
  return Quantized(NormalVector(seed, n), {density, bits});
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

constexpr int Form(int places, int values) {
  return places << internal::kPlacesShift | values;
}

// The worked example of compression/README.md, to the byte.
TEST(FrameTest, WorkedExampleOfTheReadme) {
  CompressedTensor sparse;
  sparse.Reset(1000, /*is_dense=*/false, ValueCode::kBook);
  sparse.positions = {3, 130, 131, 700};
  sparse.levels = {2, -1, 1, -1};
  sparse.book = {0.5f, 1.0f};
  CompressedTensor dense;
  dense.Reset(3, /*is_dense=*/true, ValueCode::kLinear8);
  dense.levels = {1, 0, -2};
  dense.steps = {0.25f};
  const SegmentTable table({{10, false}, {3, true}, {1000, false}, {3, true}});
  FrameEncoder encoder(&table);
  encoder.Add(2, sparse, 0, 1000);
  encoder.Add(3, dense, 0, 3);
  encoder.Add(1, dense, 0, 3);
  EXPECT_EQ(
      absl::BytesToHexString(encoder.Finish()),
      "021b025201803e803e0100fe0100fe0305040706fc000f07003f803f464a69d4d2");
}

TEST(FrameTest, EveryLayoutAndSliceRoundTrips) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest, 1);
    const int64_t n = 1 + rng.UniformInt(3000);
    const double density =
        seed % 4 == 0 ? 1.0 : std::pow(10, -3 * rng.UniformDouble());
    constexpr int kBits[] = {1, 2, 3, 4, 8, 16, 32};
    const int bits = kBits[rng.UniformInt(7) % (density == 1 ? 4 : 7) +
                           (density == 1 ? 3 : 0)];
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

    const SegmentTable both(table);
    FrameEncoder encoder(&both);
    for (const uint32_t s : order) {
      encoder.Add(s, tensor, cuts[s], cuts[s + 1]);
    }
    const int64_t estimate = encoder.size_bytes();
    const std::string bytes = encoder.Finish();
    EXPECT_LE(static_cast<int64_t>(bytes.size()), estimate);
    EXPECT_TRUE(encoder.empty());

    RV_ASSERT_OK_AND_ASSIGN(const auto updates, DecodeFrames(bytes, both));
    std::vector<float> received(static_cast<size_t>(n), 0.0f);
    for (const SegmentUpdate& u : updates) {
      EXPECT_EQ(u.mode, tensor.dense ? Mode::kAddDense : Mode::kAddSparse);
      u.AddTo(1.0f, absl::MakeSpan(received).subspan(
                        static_cast<size_t>(cuts[u.segment]),
                        static_cast<size_t>(table[u.segment])));
    }
    EXPECT_EQ(received, Decoded(tensor));
  }
}

TEST(FrameTest, SegmentsAroundSixteenBitLengthsRoundTrip) {
  for (const int64_t n : {65535, 65536, 65537}) {
    for (const int bits : {1, 2, 4, 8, 16, 32}) {
      for (const double density : {0.0005, 0.4, 1.0}) {
        if (density == 1 && bits < 4) continue;
        SCOPED_TRACE(absl::StrCat(n, " ", bits, " ", density));
        auto tensor = Compressed(5, n, density, bits);
        FrameEncoder encoder;
        encoder.Add(0, tensor, 0, n);
        RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                                DecodeFrames(encoder.Finish(), {n}));
        ASSERT_THAT(updates, SizeIs(1));
        std::vector<float> received(static_cast<size_t>(n), 0.0f);
        updates[0].ApplyTo(absl::MakeSpan(received));
        EXPECT_EQ(received, Decoded(tensor));
      }
    }
  }
}

// Positions at the end of the largest segment; no memory of its
// size is needed.
TEST(FrameTest, PositionsBeyondThirtyOneBitsRoundTrip) {
  constexpr int64_t kSize = std::numeric_limits<uint32_t>::max();
  CompressedTensor tensor;
  tensor.Reset(kSize, /*is_dense=*/false, ValueCode::kFloat);
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
  const std::string bytes = encoder.Finish();
  EXPECT_THAT(bytes, SizeIs(6));
  EXPECT_THAT(DecodeFrames(bytes, SegmentTable()), IsOkAndHolds(IsEmpty()));
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
  half.Reset(8000, /*is_dense=*/false, ValueCode::kLinear8);
  half.steps = {1.0f};
  for (uint32_t i = 0; i < 8000; ++i) {
    if (rng.UniformInt(2) == 0) continue;
    half.positions.push_back(i);
    half.levels.push_back(1);
  }
  FrameEncoder encoder;
  encoder.Add(0, half, 0, 8000);
  EXPECT_EQ(encoder.Finish().size(),
            1 + 2 + 1 + 1 + 1000 + 2 + half.positions.size() + 4);
}

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
    EXPECT_LE(encoder.Finish().size(), MaxFrameBytes(500 * kSize)) << density;
  }
}

// The size of a push that the format is made for: 20 matrices of a ResNet-20 at
// 0.1 %, and its 40 small tensors between them. Beyond the bits of positions
// and values, and two bytes a tensor for its step or book, the frame costs some
// bytes for all of each class.
TEST(FrameTest, SmallSegmentsShareTheirHeads) {
  std::vector<SegmentTable::Info> infos;
  for (int i = 0; i < 20; ++i) {
    infos.push_back({5000, false});
    infos.push_back({32, true});
    infos.push_back({32, true});
  }
  const SegmentTable table(infos);
  FrameEncoder encoder(&table);
  int64_t bits = 0;
  int64_t parameters = 0;
  std::vector<std::vector<float>> expected;
  for (uint32_t s = 0; s < table.count(); ++s) {
    const auto tensor = infos[s].small ? Compressed(s, 32, 1.0, 8)
                                       : Compressed(s, 5000, 0.001, 1);
    parameters += 2;
    // 11.4 bits are the entropy of a position.
    bits += infos[s].small ? 8 * 32 : tensor.count() * 12;
    encoder.Add(s, tensor, 0, tensor.size);
    expected.push_back(Decoded(tensor));
  }
  const std::string bytes = encoder.Finish();
  EXPECT_LE(static_cast<int64_t>(bytes.size()), bits / 8 + parameters + 40);
  RV_ASSERT_OK_AND_ASSIGN(const auto updates, DecodeFrames(bytes, table));
  ASSERT_EQ(updates.size(), table.count());
  for (const SegmentUpdate& u : updates) {
    std::vector<float> target(expected[u.segment].size(), 0.0f);
    u.ApplyTo(absl::MakeSpan(target));
    EXPECT_EQ(target, expected[u.segment]) << u.segment;
  }
}

// Segments of which nothing is sent, and those of another class, lie between.
TEST(FrameTest, GroupsOfEveryKindRoundTrip) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream rng(seed, RandomPurpose::kTest, 2);
    std::vector<SegmentTable::Info> infos;
    for (uint32_t i = 0; i < 1 + rng.UniformInt(12); ++i) {
      infos.push_back({1 + rng.UniformInt(700), rng.UniformInt(3) == 0});
    }
    const SegmentTable table(infos);
    FrameEncoder encoder(&table);
    std::map<uint32_t, std::vector<float>> expected;
    constexpr int kBits[] = {1, 2, 3, 4, 8, 16, 32};
    const int bits = kBits[rng.UniformInt(7)];
    for (uint32_t s = 0; s < table.count(); ++s) {
      if (rng.UniformInt(6) == 0) continue;
      const int64_t n = infos[s].size;
      const auto tensor = infos[s].small
                              ? Compressed(seed + s, n, 1.0, std::max(bits, 4))
                              : Compressed(seed + s, n, 0.02, bits);
      if (tensor.count() == 0) continue;
      encoder.Add(s, tensor, 0, n);
      expected[s] = Decoded(tensor);
    }
    RV_ASSERT_OK_AND_ASSIGN(const auto updates,
                            DecodeFrames(encoder.Finish(), table));
    ASSERT_EQ(updates.size(), expected.size());
    for (const SegmentUpdate& u : updates) {
      std::vector<float> target(expected[u.segment].size(), 0.0f);
      u.ApplyTo(absl::MakeSpan(target));
      EXPECT_EQ(target, expected[u.segment]) << u.segment;
    }
  }
}

// Blocks of one segment each, but for the last, which is a group of two.
std::string MixedFrame(SegmentTable* table) {
  *table = {300, 300, 300, 4, 300, 400, 500};
  FrameEncoder encoder(table);
  encoder.Add(0, Compressed(1, 300, 0.02, 8), 0, 300);
  encoder.Add(2, Compressed(2, 300, 0.4, 16), 0, 300);
  encoder.Add(1, Compressed(3, 300, 1.0, 4), 0, 300);
  encoder.AddExact(3, std::vector<float>{1, 2, 3, 4});
  encoder.Add(4, Compressed(4, 300, 0.05, 32), 0, 300);
  encoder.Add(5, Compressed(5, 400, 0.02, 1), 0, 400);
  encoder.Add(6, Compressed(6, 500, 0.05, 1), 0, 500);
  return encoder.Finish();
}

TEST(FrameTest, EveryFlippedBitIsAnError) {
  SegmentTable table;
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
  SegmentTable table;
  const std::string bytes = MixedFrame(&table);
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeFrames(bytes.substr(0, size), table),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
}

// The same with checksums that are right: a peer that cuts what it sends.
TEST(FrameTest, BodiesCutAtEveryByteAreErrorsUnlessASegmentEndsThere) {
  SegmentTable table;
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
  EXPECT_EQ(whole, 6);  // after 0 to 5 of the 6 blocks
  EXPECT_THAT(DecodeFrames(FrameOf(body + "x"), table), Not(IsOk()));
}

// Random bodies with right checksums: whatever they hold, what comes out keeps
// the promises of SegmentUpdate.
TEST(FrameTest, RandomBodiesNeverBreakThePromises) {
  SegmentTable table;
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
      ASSERT_LT(u.segment, table.count());
      const size_t n = static_cast<size_t>(table.size(u.segment));
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
  using namespace internal;  // NOLINT(google-build-using-namespace): its
                             // numbers
  const int rice = Form(kPlacesRice, kValuesLinear8);
  const int rice_book = Form(kPlacesRice, kValuesBook2);
  const int bitmap = Form(kPlacesBitmap, kValuesLinear8);
  const int all = Form(kPlacesAll, kValuesLinear8);
  const int all16 = Form(kPlacesAll, kValuesLinear16);
  const int all4 = Form(kPlacesAll, kValuesLinear4);
  const int all32 = Form(kPlacesAll, kValuesFloat);
  // The second of five elements is 1: count, k, code, step, level.
  const std::string good = Body({0, rice, 1, 0, 0x01, 0x80, 0x3F, 1});
  const Forgery forgeries[] = {
      {"segment beyond the table", Body({10, rice, 1, 0, 0, 0x80, 0x3F, 1}),
       Code::kOutOfRange, "segment 5; there are 3"},
      {"negative segment", Body({1, rice, 1, 0, 0, 0x80, 0x3F, 1}),
       Code::kOutOfRange, "segment -1"},
      {"segment beyond 32 bits",
       Body({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, rice}),
       Code::kOutOfRange, "32 bits"},
      {"segment twice", good + Body({1, rice, 1, 0, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "segment 0 is twice"},
      {"segment twice by a group",
       Body({4, rice, 1, 0, 0, 0x80, 0x3F, 1}) +
           Body({5, rice | kGroup, 2, 1, 0, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "segment 2 is twice"},
      {"long varint", Body({0x80, 0x00, rice, 1, 0, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "segment number"},
      {"all by a book", Body({0, Form(kPlacesAll, kValuesBook1)}),
       Code::kInvalidArgument, "form 0x14"},
      {"unknown places", Body({0, Form(4, kValuesFloat)}),
       Code::kInvalidArgument, "form 0x20"},
      {"replacing with levels", Body({0, Form(kPlacesReplace, kValuesLinear8)}),
       Code::kInvalidArgument, "form"},
      {"levels by a code for books only", Body({0, rice | kAdaptive}),
       Code::kInvalidArgument, "form"},
      {"group of one", Body({0, rice | kGroup, 0, 1, 0, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "group of one"},
      {"group beyond the table",
       Body({0, rice | kGroup, 3, 1, 0, 0, 0x80, 0x3F, 1}), Code::kOutOfRange,
       "4 segments from 0 on; there are 3"},
      {"huge group",
       Body({0, rice | kGroup, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}),
       Code::kOutOfRange, "there are 3"},
      {"no positions", Body({0, rice, 0, 0, 0x80, 0x3F}),
       Code::kInvalidArgument, "without a position"},
      {"Rice parameter", Body({0, rice, 1, 32, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "parameter 32; allowed: 0 to 31"},
      {"forged count",
       Body({0, rice, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "announced"},
      {"position beyond the segment",
       Body({0, rice, 1, 0, 0x1F, 0x80, 0x3F, 1}), Code::kOutOfRange,
       "position 5 in a segment of 5"},
      {"padding", Body({0, rice, 1, 0, 0x80, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "padding"},
      {"bit beyond the segment", Body({0, bitmap, 0x20, 0x80, 0x3F, 1}),
       Code::kOutOfRange, "position 5 in a block of 5"},
      {"empty bitmap", Body({0, bitmap, 0, 0x80, 0x3F}), Code::kInvalidArgument,
       "without a position"},
      {"fewer values than positions", Body({0, bitmap, 0x1F, 0x80, 0x3F, 1, 2}),
       Code::kInvalidArgument,
       "5 values announced, but 4 bytes are left for them"},
      {"no step", Body({0, rice, 1, 0, 0, 0x80}), Code::kInvalidArgument,
       "steps is cut off"},
      {"negative step", Body({0, rice, 1, 0, 0, 0x80, 0xBF, 1}),
       Code::kInvalidArgument, "step"},
      {"infinite step", Body({0, all, 0x80, 0x7F, 1, 1, 1, 1, 1}),
       Code::kInvalidArgument, "step"},
      {"step that overflows", Body({0, all, 0x7F, 0x7F, 1, 1, 1, 1, 2}),
       Code::kInvalidArgument, "value 4 is not finite"},
      {"level -128", Body({0, all, 0x80, 0x3F, 1, 1, 1, 1, 0x80}),
       Code::kInvalidArgument, "-127 to 127"},
      {"level -32768",
       Body({0, all16, 0x80, 0x3F, 0, 0x80, 1, 1, 1, 1, 1, 1, 1, 1}),
       Code::kInvalidArgument, "-32767 to 32767"},
      {"level -8", Body({0, all4, 0x80, 0x3F, 0x11, 0x18, 0x01}),
       Code::kInvalidArgument, "-7 to 7"},
      {"padding of levels", Body({0, all4, 0x80, 0x3F, 0x11, 0x11, 0x11}),
       Code::kInvalidArgument, "padding"},
      {"book that falls",
       Body({0, rice_book, 1, 0, 0, 0x80, 0x3F, 0x00, 0x3F, 1}),
       Code::kInvalidArgument, "do not rise"},
      {"book with a zero", Body({0, rice_book, 1, 0, 0, 0, 0, 0x80, 0x3F, 1}),
       Code::kInvalidArgument, "do not rise"},
      {"padding of symbols",
       Body({0, rice_book, 1, 0, 0, 0x80, 0x3F, 0x80, 0x3F, 0x04}),
       Code::kInvalidArgument, "padding"},
      {"NaN", Body({0, all32, 0, 0, 0xC0, 0x7F, 0, 0, 0, 0, 0,
                    0, 0,     0, 0, 0,    0,    0, 0, 0, 0, 0}),
       Code::kInvalidArgument, "value 0 is not finite"},
      {"trailing byte", good + Body({0}), Code::kInvalidArgument,
       "form is cut off"},
      {"segment without elements", Body({2, bitmap, 0x80, 0x3F}),
       Code::kInvalidArgument, "without elements"},
  };
  for (const Forgery& f : forgeries) {
    EXPECT_THAT(DecodeFrames(FrameOf(f.body), {5, 0, 3}),
                StatusIs(f.code, HasSubstr(f.message)))
        << f.what;
  }
  // The plain forms of what is forged above are accepted.
  EXPECT_THAT(DecodeFrames(FrameOf(good), {5, 0, 3}), IsOk());
  EXPECT_THAT(
      DecodeFrames(
          FrameOf(Body({0, rice | kGroup, 2, 1, 0, 0x3F, 0x80, 0x3F, 1})),
          {5, 0, 3}),
      IsOk());
  EXPECT_THAT(
      DecodeFrames(
          FrameOf(Body({0, rice_book, 1, 0, 0, 0x80, 0x3F, 0x80, 0x3F, 0x03})),
          {5, 0, 3}),
      IsOk());
}

TEST(FrameTest, OtherVersionsAreNamed) {
  std::string bytes = FrameOf("");
  bytes[0] = 1;
  EXPECT_THAT(
      DecodeFrames(bytes, SegmentTable()),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 1")));
}

TEST(FrameTest, ForgedLengthIsACutFrame) {
  // 2^62 bytes announced.
  std::string bytes = "\x02\x80\x80\x80\x80\x80\x80\x80\x80\x40";
  EXPECT_THAT(DecodeFrames(bytes, SegmentTable()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut off")));
}

TEST(FrameTest, SameInputGivesTheSameBytes) {
  SegmentTable table;
  EXPECT_EQ(MixedFrame(&table), MixedFrame(&table));
}

TEST(DescribeFramesTest, SaysHowEachBlockIsWrittenAndWhatItCosts) {
  const SegmentTable table(
      {{3000, false}, {40, true}, {3000, false}, {60, true}, {64, false}});
  FrameEncoder encoder(&table);
  encoder.Add(0, Compressed(1, 3000, 0.01, 2), 0, 3000);  // 30 values
  encoder.Add(1, Compressed(2, 40, 1.0, 8), 0, 40);
  encoder.Add(2, Compressed(3, 3000, 0.01, 2), 0, 3000);
  encoder.Add(3, Compressed(4, 60, 1.0, 8), 0, 60);
  encoder.AddExact(4, NormalVector(5, 64));
  const std::string bytes = encoder.Finish();
  const auto found = DescribeFrames(bytes, table);
  RV_ASSERT_OK(found.status());
  EXPECT_EQ(found->num_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(found->updates.size(), 5u);
  ASSERT_THAT(found->blocks, SizeIs(3));
  int64_t inner = 0;
  for (const BlockDescription& b : found->blocks) {
    inner += b.position_bytes + b.parameter_bytes + b.value_bytes;
  }
  // Version, length and checksum; of a block, number, form and group.
  EXPECT_LE(inner, found->num_bytes - 7 - 3 * 2 - 2);
  EXPECT_GE(inner, found->num_bytes - 7 - 3 * 3);

  const BlockDescription& sparse = found->blocks[0];
  EXPECT_THAT(sparse.segments, ElementsAre(0, 2));
  EXPECT_EQ(sparse.elements, 6000);
  EXPECT_EQ(sparse.count,
            static_cast<int64_t>(found->updates[0].values.size() +
                                 found->updates[1].values.size()));
  EXPECT_THAT(sparse.positions, StartsWith("Rice "));
  EXPECT_THAT(sparse.values, StartsWith("book of 2"));
  EXPECT_EQ(sparse.parameter_bytes, 2 * 2 * 2);
  EXPECT_FALSE(sparse.replaces);

  const BlockDescription& small = found->blocks[1];
  EXPECT_THAT(small.segments, ElementsAre(1, 3));
  EXPECT_EQ(small.positions, "all");
  EXPECT_EQ(small.values, "8 bits");
  EXPECT_EQ(small.position_bytes, 0);
  EXPECT_EQ(small.parameter_bytes, 2 * 2);
  EXPECT_EQ(small.value_bytes, 100);

  const BlockDescription& exact = found->blocks[2];
  EXPECT_EQ(exact.values, "fp32");
  EXPECT_TRUE(exact.replaces);
  EXPECT_EQ(exact.value_bytes, 4 * 64);
}

TEST(DescribeFramesTest, RefusesWhatTheDecoderRefuses) {
  SegmentTable table;
  std::string bytes = MixedFrame(&table);
  EXPECT_EQ(DescribeFrames(bytes, table)->updates.size(),
            DecodeFrames(bytes, table)->size());
  bytes.back() ^= 1;
  EXPECT_THAT(DescribeFrames(bytes, table),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
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
  encoder.Add(1, odd_step, 0, 600);
  EXPECT_DEATH(encoder.Finish(), "bfloat16");
}

}  // namespace
}  // namespace rivulet
