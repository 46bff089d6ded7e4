// What a ratio means: the sizes that were published for Deep Gradient
// Compression, computed by its own way to count, and beside them what this
// product's frames take of the same models at the same density.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "compression/bench/published_models.h"
#include "compression/frame.h"
#include "compression/gradient_compressor.h"
#include "compression/segment_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compression/test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::NormalVector;

constexpr double kDensity = 0.001;
constexpr double kMebibyte = 1024.0 * 1024.0;

struct Published {
  PublishedModel model;
  int64_t parameters;
  int64_t small;
  double mebibytes;  // of a push, to the digits given
  double ratio;
};

// Lin et al., tables 2 and 3; the CIFAR nets, which it does not give, by the
// same formula.
std::vector<Published> AllPublished() {
  return {{AlexNet(), 60965224, 10568, 0.3891, 597.7},
          {ResNet50(), 25557032, 54120, 0.3524, 276.7},
          {PtbLstm(), 51034000, 34000, 0.4215, 461.8},
          {CifarResNet(110), 1727962, 8106, 0.0408, 161.7},
          {CifarResNet(20), 269722, 1386, 0.0068, 150.8}};
}

TEST(AccountingTest, ThePublishedSizesFollowFromTheFormula) {
  for (const Published& p : AllPublished()) {
    SCOPED_TRACE(p.model.name);
    EXPECT_EQ(p.model.num_parameters(), p.parameters);
    EXPECT_EQ(p.model.num_small(), p.small);
    const double bytes = DgcPushBytes(p.model, kDensity);
    EXPECT_NEAR(bytes / kMebibyte, p.mebibytes, 0.00005);
    EXPECT_NEAR(4.0 * static_cast<double>(p.parameters) / bytes, p.ratio, 0.05);
  }
  EXPECT_EQ(ResNet50().tensors.size(), 161u);
}

// Mean bytes of the frames of eight steps, a round of turns of the small
// tensors, for normal gradients under error feedback.
double FrameBytes(const PublishedModel& model, int bits, bool turns) {
  std::vector<SegmentTable::Info> infos;
  std::vector<std::unique_ptr<GradientCompressor>> compressors;
  for (const PublishedTensor& t : model.tensors) {
    infos.push_back({t.size, t.small});
    GradientCompressorOptions options;
    options.form = MomentumForm::kNone;
    options.mask = false;
    auto made = GradientCompressor::Create(t.size, options);
    EXPECT_TRUE(made.ok());
    compressors.push_back(*std::move(made));
  }
  const SegmentTable table(infos);
  const auto pool = NormalVector(1, 1 << 20);
  constexpr int kWarmUp = 8;
  double bytes = 0;
  for (int64_t step = 0; step < kWarmUp + 8; ++step) {
    FrameEncoder encoder(&table);
    int64_t small_before = 0;
    CompressedTensor sent;
    for (size_t i = 0; i < infos.size(); ++i) {
      AlignedBuffer<float> gradient(infos[i].size);
      for (int64_t k = 0; k < infos[i].size; ++k) {
        gradient.data()[k] = pool[static_cast<size_t>(
            (k + 7919 * step + 104729 * static_cast<int64_t>(i)) &
            ((1 << 20) - 1))];
      }
      TensorPlan plan{kDensity, bits};
      if (infos[i].small) {
        const int64_t turn =
            TurnOf(small_before, infos[i].size, model.num_small(), 8);
        small_before += infos[i].size;
        plan = {!turns || step % 8 == turn ? 1.0 : 0.0, 8};
      }
      EXPECT_TRUE(
          compressors[i]->Compress({.gradient = &gradient}, plan, &sent).ok());
      compressors[i]->Commit();
      if (sent.count() > 0) {
        encoder.Add(static_cast<uint32_t>(i), sent, 0, sent.size);
      }
    }
    const std::string frame = encoder.Finish();
    EXPECT_TRUE(DecodeFrames(frame, table).ok());
    if (step >= kWarmUp) bytes += static_cast<double>(frame.size()) / 8;
  }
  return bytes;
}

// The same models at the same density: everything that a frame has, its head
// and checksum too.
TEST(AccountingTest, FramesAreAFractionOfThePublishedSizes) {
  struct Bound {
    PublishedModel model;
    double whole;  // bytes with 8-bit small tensors in every step, 2-bit values
    double turns;  // ... taking turns, 1-bit values
  };
  for (const Bound& b : {Bound{CifarResNet(20), 2300, 800},
                         Bound{CifarResNet(110), 13500, 5200}}) {
    SCOPED_TRACE(b.model.name);
    const double published = DgcPushBytes(b.model, kDensity);
    const double whole = FrameBytes(b.model, 2, /*turns=*/false);
    const double turns = FrameBytes(b.model, 1, /*turns=*/true);
    RecordProperty(b.model.name + " published", static_cast<int>(published));
    RecordProperty(b.model.name + " whole", static_cast<int>(whole));
    RecordProperty(b.model.name + " turns", static_cast<int>(turns));
    EXPECT_LE(whole, b.whole);
    EXPECT_LE(turns, b.turns);
    // No less than the information of the positions alone, 11.4 bits each.
    EXPECT_GE(turns, 11.4 / 8 * kDensity *
                         static_cast<double>(b.model.num_parameters() -
                                             b.model.num_small()));
  }
}

}  // namespace
}  // namespace rivulet
