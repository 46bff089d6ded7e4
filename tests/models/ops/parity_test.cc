// The fast operations against the reference ones, which are checked on their
// own. Sums of K products of values of order 1 differ by about sqrt(K)
// roundings of 6e-8, so the tolerances grow with sqrt(K).

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/ops/backend.h"
#include "tests/models/ops/ops_test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ExpectClose;
using ::rivulet::testing::RandomValues;
using Vector = std::vector<float>;

double SumTolerance(double terms) { return 4e-6 + 2.5e-7 * terms; }

class ParityTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    RV_ASSERT_OK_AND_ASSIGN(fast_, MakeCpuBackend(GetParam()));
    fast_->BindThread();
  }

  // An image of the fast backend; its padding holds NaN when it is an output,
  // to show that operations write it.
  Vector Pack(const ActivationShape& shape, const Vector& plain) const {
    Vector image(fast_->ImageSize(shape));
    fast_->Pack(shape, plain.data(), image.data());
    return image;
  }
  Vector Output(const ActivationShape& shape) const {
    return Vector(fast_->ImageSize(shape), std::nanf(""));
  }
  Vector Unpack(const ActivationShape& shape, const Vector& image) const {
    Vector plain(shape.num_elements());
    fast_->Unpack(shape, image.data(), plain.data());
    EXPECT_EQ(Pack(shape, plain), image) << "padding is not zero";
    return plain;
  }

  void CheckConvolution(ConvolutionSpec spec);
  void CheckNormalization(const NormalizationSpec& spec);

  const std::unique_ptr<Backend<float>> reference_ =
      MakeReferenceBackend<float>();
  std::unique_ptr<Backend<float>> fast_;
};

void ParityTest::CheckConvolution(ConvolutionSpec spec) {
  SCOPED_TRACE(absl::StrCat(spec.input.ToString(), " -> ", spec.out_channels,
                            " stride ", spec.stride));
  RV_ASSERT_OK_AND_ASSIGN(auto fast, fast_->MakeConvolution(spec));
  RV_ASSERT_OK_AND_ASSIGN(auto slow, reference_->MakeConvolution(spec));
  const Vector x = RandomValues<float>(1, spec.input.num_elements());
  const Vector weight = RandomValues<float>(2, spec.num_weights());
  const Vector dy = RandomValues<float>(3, spec.Output().num_elements());
  const Vector x_image = spec.plain_input ? x : Pack(spec.input, x);
  const Vector dy_image = Pack(spec.Output(), dy);
  const double taps = static_cast<double>(spec.kernel * spec.kernel);

  Vector y(dy.size());
  Vector y_image = Output(spec.Output());
  slow->SetWeights(weight.data());
  slow->Forward(x.data(), y.data());
  fast->SetWeights(weight.data());
  fast->Forward(x_image.data(), y_image.data());
  ExpectClose("y", Unpack(spec.Output(), y_image), y,
              SumTolerance(taps * static_cast<double>(spec.input.c)), 1e-6);

  Vector dweight(weight.size()), fast_dweight(weight.size());
  slow->BackwardWeights(x.data(), dy.data(), dweight.data());
  fast->BackwardWeights(x_image.data(), dy_image.data(), fast_dweight.data());
  ExpectClose("dweight", fast_dweight, dweight,
              SumTolerance(static_cast<double>(spec.Output().n *
                                               spec.Output().pixels())),
              1e-6);

  if (!spec.needs_input_gradient) return;
  Vector dx(x.size());
  Vector dx_image = Output(spec.input);
  slow->BackwardData(dy.data(), dx.data());
  fast->BackwardData(dy_image.data(), dx_image.data());
  ExpectClose("dx", Unpack(spec.input, dx_image), dx,
              SumTolerance(taps * static_cast<double>(spec.out_channels)),
              1e-6);
}

TEST_P(ParityTest, ConvolutionAgreesOverSizesChannelsAndStrides) {
  struct Case {
    ActivationShape input;
    int64_t out, stride;
  };
  const Case cases[] = {{{1, 16, 8, 8}, 16, 1}, {{2, 16, 9, 7}, 32, 2},
                        {{3, 32, 5, 5}, 32, 1}, {{1, 1, 1, 1}, 1, 1},
                        {{2, 20, 6, 5}, 12, 1}, {{2, 12, 7, 6}, 20, 2},
                        {{5, 17, 4, 4}, 33, 1}, {{1, 64, 3, 3}, 64, 1},
                        {{3, 8, 4, 6}, 24, 2},  {{2, 64, 8, 8}, 64, 1}};
  for (const Case& c : cases) {
    ConvolutionSpec spec;
    spec.input = c.input;
    spec.out_channels = c.out;
    spec.stride = c.stride;
    CheckConvolution(spec);
  }
}

TEST_P(ParityTest, FirstConvolutionTakesPlainImages) {
  for (const int64_t channels : {1, 2, 3, 4, 20}) {
    for (const int64_t batch : {1, 3}) {
      ConvolutionSpec spec;
      spec.input = {batch, channels, 7, 8};
      spec.out_channels = 16;
      spec.plain_input = true;
      spec.needs_input_gradient = false;
      CheckConvolution(spec);
    }
  }
}

TEST_P(ParityTest, ConvolutionFollowsNewWeights) {
  ConvolutionSpec spec;
  spec.input = {2, 16, 5, 5};
  spec.out_channels = 16;
  RV_ASSERT_OK_AND_ASSIGN(auto op, fast_->MakeConvolution(spec));
  const Vector x = Pack(spec.input, RandomValues<float>(1, 800));
  Vector weight = RandomValues<float>(2, spec.num_weights());
  Vector before = Output(spec.Output()), after = before;
  op->SetWeights(weight.data());
  op->Forward(x.data(), before.data());
  for (float& w : weight) w = -w;
  op->SetWeights(weight.data());
  op->Forward(x.data(), after.data());
  for (float& v : after) v = -v;
  EXPECT_EQ(after, before);
}

void ParityTest::CheckNormalization(const NormalizationSpec& spec) {
  SCOPED_TRACE(absl::StrCat(spec.shape.ToString(), " group ", spec.group_size,
                            " relu ", spec.relu));
  RV_ASSERT_OK_AND_ASSIGN(auto fast, fast_->MakeNormalization(spec));
  RV_ASSERT_OK_AND_ASSIGN(auto slow, reference_->MakeNormalization(spec));
  const int64_t size = spec.shape.num_elements();
  Vector x = RandomValues<float>(1, size);
  for (float& v : x) v = 3 * v + 2;  // a mean that is not zero
  const Vector scale = RandomValues<float>(2, spec.shape.c);
  const Vector shift = RandomValues<float>(3, spec.shape.c);
  const Vector dy = RandomValues<float>(4, size);
  const Vector x_image = Pack(spec.shape, x);
  constexpr double kTolerance = 2e-5;

  Vector y(size);
  Vector y_image = Output(spec.shape);
  slow->Forward(x.data(), scale.data(), shift.data(), y.data());
  fast->Forward(x_image.data(), scale.data(), shift.data(), y_image.data());
  ExpectClose("y", Unpack(spec.shape, y_image), y, kTolerance, 1e-5);
  ExpectClose("mean", Vector(fast->mean().begin(), fast->mean().end()),
              Vector(slow->mean().begin(), slow->mean().end()), 1e-5, 1e-5);
  ExpectClose(
      "variance", Vector(fast->variance().begin(), fast->variance().end()),
      Vector(slow->variance().begin(), slow->variance().end()), 1e-5, 1e-5);

  Vector evaluated(size);
  Vector evaluated_image = Output(spec.shape);
  Vector variance = RandomValues<float>(6, spec.shape.c);
  for (float& v : variance) v = v * v + 0.1f;
  slow->Evaluate(x.data(), scale.data(), shift.data(), shift.data(),
                 variance.data(), evaluated.data());
  fast->Evaluate(x_image.data(), scale.data(), shift.data(), shift.data(),
                 variance.data(), evaluated_image.data());
  ExpectClose("evaluated", Unpack(spec.shape, evaluated_image), evaluated,
              kTolerance, 1e-5);

  // Evaluate must not have disturbed what Backward needs.
  Vector dx(size), dscale(spec.shape.c), dshift(spec.shape.c);
  Vector fast_dscale(spec.shape.c), fast_dshift(spec.shape.c);
  slow->Backward(x.data(), y.data(), scale.data(), dy.data(), dx.data(),
                 dscale.data(), dshift.data());
  Vector dx_image = Pack(spec.shape, dy);  // in place
  fast->Backward(x_image.data(), y_image.data(), scale.data(), dx_image.data(),
                 dx_image.data(), fast_dscale.data(), fast_dshift.data());
  const double per_channel =
      static_cast<double>(spec.shape.n * spec.shape.pixels());
  ExpectClose("dx", Unpack(spec.shape, dx_image), dx, kTolerance, 1e-5);
  ExpectClose("dscale", fast_dscale, dscale, 4 * SumTolerance(per_channel),
              1e-5);
  ExpectClose("dshift", fast_dshift, dshift, 4 * SumTolerance(per_channel),
              1e-5);
}

TEST_P(ParityTest, BatchNormAgreesOverSizesAndChannels) {
  const ActivationShape shapes[] = {{4, 16, 8, 8}, {3, 32, 5, 3},
                                    {1, 64, 4, 4}, {2, 20, 3, 3},
                                    {7, 1, 2, 3},  {2, 17, 5, 5}};
  for (const ActivationShape& shape : shapes) {
    for (const bool relu : {false, true}) {
      NormalizationSpec spec;
      spec.shape = shape;
      spec.relu = relu;
      CheckNormalization(spec);
    }
  }
}

TEST_P(ParityTest, GroupNormAgreesOverSizesChannelsAndGroups) {
  struct Case {
    ActivationShape shape;
    int64_t group;
  };
  // Groups smaller and larger than a block, across blocks, and partial blocks.
  const Case cases[] = {{{3, 16, 8, 8}, 8},  {{2, 32, 5, 7}, 8},
                        {{1, 64, 4, 4}, 32}, {{2, 48, 3, 3}, 24},
                        {{2, 20, 4, 3}, 5},  {{5, 6, 7, 5}, 3},
                        {{2, 3, 3, 3}, 1},   {{1, 17, 2, 2}, 17}};
  for (const Case& c : cases) {
    for (const bool relu : {false, true}) {
      NormalizationSpec spec;
      spec.shape = c.shape;
      spec.kind = NormalizationSpec::Kind::kGroup;
      spec.group_size = c.group;
      spec.relu = relu;
      CheckNormalization(spec);
    }
  }
}

TEST_P(ParityTest, LinearAgreesOverSizes) {
  const LinearSpec specs[] = {
      {1, 1, 1}, {128, 64, 10}, {3, 17, 5}, {7, 784, 33}, {1, 64, 100}};
  for (const LinearSpec& spec : specs) {
    SCOPED_TRACE(absl::StrCat(spec.batch, " x ", spec.in, " -> ", spec.out));
    RV_ASSERT_OK_AND_ASSIGN(auto fast, fast_->MakeLinear(spec));
    RV_ASSERT_OK_AND_ASSIGN(auto slow, reference_->MakeLinear(spec));
    const Vector x = RandomValues<float>(1, spec.batch * spec.in);
    const Vector weight = RandomValues<float>(2, spec.in * spec.out);
    const Vector bias = RandomValues<float>(3, spec.out);
    const Vector dy = RandomValues<float>(4, spec.batch * spec.out);
    Vector y(dy.size()), fast_y(dy.size());
    slow->Forward(x.data(), weight.data(), bias.data(), y.data());
    fast->Forward(x.data(), weight.data(), bias.data(), fast_y.data());
    ExpectClose("y", fast_y, y, SumTolerance(static_cast<double>(spec.in)),
                1e-6);
    Vector dx(x.size()), fast_dx(x.size());
    slow->BackwardData(dy.data(), weight.data(), dx.data());
    fast->BackwardData(dy.data(), weight.data(), fast_dx.data());
    ExpectClose("dx", fast_dx, dx, SumTolerance(static_cast<double>(spec.out)),
                1e-6);
    Vector dw(weight.size()), fast_dw(weight.size());
    Vector db(bias.size()), fast_db(bias.size());
    slow->BackwardWeights(x.data(), dy.data(), dw.data(), db.data());
    fast->BackwardWeights(x.data(), dy.data(), fast_dw.data(), fast_db.data());
    const double tolerance = SumTolerance(static_cast<double>(spec.batch));
    ExpectClose("dweight", fast_dw, dw, tolerance, 1e-6);
    ExpectClose("dbias", fast_db, db, tolerance, 1e-6);
  }
}

TEST_P(ParityTest, PoolAgreesOverSizesAndChannels) {
  for (const ActivationShape& shape :
       {ActivationShape{4, 64, 8, 8}, ActivationShape{3, 20, 5, 3},
        ActivationShape{1, 1, 1, 1}, ActivationShape{2, 16, 7, 7}}) {
    SCOPED_TRACE(shape.ToString());
    RV_ASSERT_OK_AND_ASSIGN(auto fast, fast_->MakePool(shape));
    RV_ASSERT_OK_AND_ASSIGN(auto slow, reference_->MakePool(shape));
    const Vector x = RandomValues<float>(1, shape.num_elements());
    const Vector dy = RandomValues<float>(2, shape.n * shape.c);
    const Vector x_image = Pack(shape, x);
    Vector y(dy.size()), fast_y(dy.size()), dx(x.size());
    Vector dx_image = Output(shape);
    slow->Forward(x.data(), y.data());
    fast->Forward(x_image.data(), fast_y.data());
    ExpectClose("y", fast_y, y, 1e-6, 1e-6);
    slow->BackwardData(dy.data(), dx.data());
    fast->BackwardData(dy.data(), dx_image.data());
    ExpectClose("dx", Unpack(shape, dx_image), dx, 0, 1e-6);
  }
}

TEST_P(ParityTest, ShortcutIsExact) {
  for (const ShortcutSpec& spec :
       {ShortcutSpec{{3, 16, 8, 8}, 32}, ShortcutSpec{{2, 32, 7, 5}, 64},
        ShortcutSpec{{1, 3, 1, 1}, 9}, ShortcutSpec{{2, 20, 4, 6}, 42},
        ShortcutSpec{{2, 16, 3, 3}, 16}}) {
    SCOPED_TRACE(spec.input.ToString());
    RV_ASSERT_OK_AND_ASSIGN(auto fast, fast_->MakeShortcut(spec));
    RV_ASSERT_OK_AND_ASSIGN(auto slow, reference_->MakeShortcut(spec));
    const Vector x = RandomValues<float>(1, spec.input.num_elements());
    const Vector dy = RandomValues<float>(2, spec.Output().num_elements());
    Vector dx = RandomValues<float>(3, spec.input.num_elements());
    Vector dx_image = Pack(spec.input, dx);
    Vector y(dy.size());
    Vector y_image = Output(spec.Output());
    slow->Forward(x.data(), y.data());
    fast->Forward(Pack(spec.input, x).data(), y_image.data());
    EXPECT_EQ(Unpack(spec.Output(), y_image), y);
    slow->BackwardAdd(dy.data(), dx.data());
    fast->BackwardAdd(Pack(spec.Output(), dy).data(), dx_image.data());
    EXPECT_EQ(Unpack(spec.input, dx_image), dx);
  }
}

TEST_P(ParityTest, ElementwiseIsExactInPlaceToo) {
  Elementwise<float>& fast = fast_->elementwise();
  Elementwise<float>& slow = reference_->elementwise();
  for (const int64_t size : {0, 1, 15, 17, 4095, 4097, 20000}) {
    SCOPED_TRACE(size);
    const Vector a = RandomValues<float>(1, size);
    const Vector b = RandomValues<float>(2, size);
    const Vector y = RandomValues<float>(3, size);
    Vector expected(size), actual = a;
    slow.Relu(size, a.data(), expected.data());
    fast.Relu(size, actual.data(), actual.data());
    EXPECT_EQ(actual, expected);
    slow.AddRelu(size, a.data(), b.data(), expected.data());
    actual = a;
    fast.AddRelu(size, actual.data(), b.data(), actual.data());
    EXPECT_EQ(actual, expected);
    slow.ReluBackward(size, y.data(), a.data(), expected.data());
    actual = a;
    fast.ReluBackward(size, y.data(), actual.data(), actual.data());
    EXPECT_EQ(actual, expected);
    slow.AddReluBackward(size, y.data(), a.data(), b.data(), expected.data());
    actual = b;
    fast.AddReluBackward(size, y.data(), a.data(), actual.data(),
                         actual.data());
    EXPECT_EQ(actual, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParityTest, ::testing::Values(1, 2));

TEST(CpuBackendTest, RefusesZeroThreadsWhereItHasThreads) {
  const auto backend = MakeCpuBackend(0);
  if (backend.ok()) {
    EXPECT_EQ((*backend)->name(), "reference");
  } else {
    EXPECT_THAT(backend.status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::HasSubstr("threads is 0")));
  }
}

}  // namespace
}  // namespace rivulet
