// Every reference operation's gradient against central differences in double,
// and its forward pass against values worked out by hand.

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/ops/backend.h"
#include "tests/models/ops/ops_test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Dot;
using ::rivulet::testing::ExpectGradient;
using ::rivulet::testing::RandomValues;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReferenceTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Backend<double>> backend_ =
      MakeReferenceBackend<double>();
};

ConvolutionSpec Conv(ActivationShape input, int64_t out, int64_t kernel,
                     int64_t stride, int64_t padding) {
  ConvolutionSpec spec;
  spec.input = input;
  spec.out_channels = out;
  spec.kernel = kernel;
  spec.stride = stride;
  spec.padding = padding;
  return spec;
}

TEST_F(ReferenceTest, ConvolutionOfAnImpulseIsTheFlippedKernel) {
  RV_ASSERT_OK_AND_ASSIGN(
      auto op, backend_->MakeConvolution(Conv({1, 1, 3, 3}, 1, 3, 1, 1)));
  const std::vector<double> x = {0, 0, 0, 0, 1, 0, 0, 0, 0};
  const std::vector<double> weight = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<double> y(9);
  op->SetWeights(weight.data());
  op->Forward(x.data(), y.data());
  EXPECT_THAT(y, ElementsAre(9, 8, 7, 6, 5, 4, 3, 2, 1));
}

TEST_F(ReferenceTest, ConvolutionGradientsAreItsDerivatives) {
  const ConvolutionSpec specs[] = {
      Conv({2, 3, 5, 4}, 2, 3, 1, 1), Conv({1, 2, 5, 7}, 3, 3, 2, 1),
      Conv({1, 2, 6, 4}, 2, 3, 2, 1), Conv({2, 1, 4, 5}, 2, 2, 1, 0),
      Conv({1, 2, 3, 3}, 2, 1, 2, 0), Conv({1, 1, 1, 1}, 1, 3, 1, 1)};
  uint64_t seed = 10;
  for (const ConvolutionSpec& spec : specs) {
    SCOPED_TRACE(spec.input.ToString());
    RV_ASSERT_OK_AND_ASSIGN(auto op, backend_->MakeConvolution(spec));
    auto x = RandomValues<double>(++seed, spec.input.num_elements());
    auto weight = RandomValues<double>(++seed, spec.num_weights());
    const auto dy = RandomValues<double>(++seed, spec.Output().num_elements());
    std::vector<double> y(dy.size()), dx(x.size()), dweight(weight.size());
    const auto loss = [&] {
      op->SetWeights(weight.data());
      op->Forward(x.data(), y.data());
      return Dot(y, dy);
    };
    loss();
    op->BackwardData(dy.data(), dx.data());
    op->BackwardWeights(x.data(), dy.data(), dweight.data());
    ExpectGradient("x", x, dx, loss);
    ExpectGradient("weight", weight, dweight, loss);
  }
}

NormalizationSpec Norm(ActivationShape shape, NormalizationSpec::Kind kind,
                       int64_t group_size, bool relu) {
  NormalizationSpec spec;
  spec.shape = shape;
  spec.kind = kind;
  spec.group_size = group_size;
  spec.relu = relu;
  return spec;
}

TEST_F(ReferenceTest, NormalizationGradientsAreItsDerivatives) {
  using Kind = NormalizationSpec::Kind;
  const NormalizationSpec specs[] = {Norm({3, 2, 3, 2}, Kind::kBatch, 1, false),
                                     Norm({2, 3, 1, 5}, Kind::kBatch, 1, true),
                                     Norm({1, 2, 3, 3}, Kind::kBatch, 1, true),
                                     Norm({2, 6, 2, 3}, Kind::kGroup, 3, false),
                                     Norm({3, 4, 3, 1}, Kind::kGroup, 2, true),
                                     Norm({2, 3, 3, 3}, Kind::kGroup, 1, true)};
  uint64_t seed = 100;
  for (const NormalizationSpec& spec : specs) {
    SCOPED_TRACE(spec.shape.ToString());
    RV_ASSERT_OK_AND_ASSIGN(auto op, backend_->MakeNormalization(spec));
    auto x = RandomValues<double>(++seed, spec.shape.num_elements());
    auto scale = RandomValues<double>(++seed, spec.shape.c);
    auto shift = RandomValues<double>(++seed, spec.shape.c);
    const auto dy = RandomValues<double>(++seed, spec.shape.num_elements());
    std::vector<double> y(x.size()), dx(x.size());
    std::vector<double> dscale(scale.size()), dshift(shift.size());
    const auto loss = [&] {
      op->Forward(x.data(), scale.data(), shift.data(), y.data());
      return Dot(y, dy);
    };
    loss();
    op->Backward(x.data(), y.data(), scale.data(), dy.data(), dx.data(),
                 dscale.data(), dshift.data());
    ExpectGradient("x", x, dx, loss);
    ExpectGradient("scale", scale, dscale, loss);
    ExpectGradient("shift", shift, dshift, loss);
  }
}

TEST_F(ReferenceTest, BatchNormNormalizesOverBatchAndPixels) {
  RV_ASSERT_OK_AND_ASSIGN(
      auto op, backend_->MakeNormalization(Norm(
                   {2, 1, 1, 2}, NormalizationSpec::Kind::kBatch, 1, false)));
  const std::vector<double> x = {1, 2, 3, 6};
  const double scale = 2, shift = 1;
  std::vector<double> y(4);
  op->Forward(x.data(), &scale, &shift, y.data());
  EXPECT_THAT(op->mean(), ElementsAre(3));
  EXPECT_THAT(op->variance(), ElementsAre(3.5));  // biased
  EXPECT_NEAR(y[3], 1 + 2 * 3 / std::sqrt(3.5 + 1e-5), 1e-12);
  // Given statistics instead of the batch's.
  const double mean = 1, variance = 4;
  op->Evaluate(x.data(), &scale, &shift, &mean, &variance, y.data());
  EXPECT_NEAR(y[2], 1 + 2 * 2 / std::sqrt(4 + 1e-5), 1e-12);
}

TEST_F(ReferenceTest, GroupNormOfAnImageIgnoresTheOthers) {
  const NormalizationSpec two =
      Norm({2, 4, 2, 2}, NormalizationSpec::Kind::kGroup, 2, true);
  NormalizationSpec one = two;
  one.shape.n = 1;
  RV_ASSERT_OK_AND_ASSIGN(auto op_two, backend_->MakeNormalization(two));
  RV_ASSERT_OK_AND_ASSIGN(auto op_one, backend_->MakeNormalization(one));
  const auto x = RandomValues<double>(5, two.shape.num_elements());
  const auto scale = RandomValues<double>(6, 4);
  const auto shift = RandomValues<double>(7, 4);
  std::vector<double> both(x.size()), single(x.size() / 2);
  op_two->Forward(x.data(), scale.data(), shift.data(), both.data());
  op_one->Evaluate(x.data() + single.size(), scale.data(), shift.data(),
                   nullptr, nullptr, single.data());
  both.erase(both.begin(), both.begin() + static_cast<int64_t>(single.size()));
  EXPECT_EQ(both, single);
}

TEST_F(ReferenceTest, LinearGradientsAreItsDerivatives) {
  const LinearSpec spec{3, 5, 4};
  RV_ASSERT_OK_AND_ASSIGN(auto op, backend_->MakeLinear(spec));
  auto x = RandomValues<double>(1, 15);
  auto weight = RandomValues<double>(2, 20);
  auto bias = RandomValues<double>(3, 4);
  const auto dy = RandomValues<double>(4, 12);
  std::vector<double> y(12), dx(15), dweight(20), dbias(4);
  const auto loss = [&] {
    op->Forward(x.data(), weight.data(), bias.data(), y.data());
    return Dot(y, dy);
  };
  loss();
  op->BackwardData(dy.data(), weight.data(), dx.data());
  op->BackwardWeights(x.data(), dy.data(), dweight.data(), dbias.data());
  ExpectGradient("x", x, dx, loss);
  ExpectGradient("weight", weight, dweight, loss);
  ExpectGradient("bias", bias, dbias, loss);
}

TEST_F(ReferenceTest, PoolGradientIsItsDerivative) {
  const ActivationShape shape{2, 3, 3, 5};
  RV_ASSERT_OK_AND_ASSIGN(auto op, backend_->MakePool(shape));
  auto x = RandomValues<double>(1, shape.num_elements());
  const auto dy = RandomValues<double>(2, 6);
  std::vector<double> y(6), dx(x.size());
  const auto loss = [&] {
    op->Forward(x.data(), y.data());
    return Dot(y, dy);
  };
  loss();
  op->BackwardData(dy.data(), dx.data());
  ExpectGradient("x", x, dx, loss);
}

TEST_F(ReferenceTest, ShortcutSubsamplesAndPadsChannelsOnBothSides) {
  RV_ASSERT_OK_AND_ASSIGN(auto op, backend_->MakeShortcut({{1, 1, 3, 4}, 3}));
  const std::vector<double> x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<double> y(12);
  op->Forward(x.data(), y.data());
  EXPECT_THAT(y, ElementsAre(0, 0, 0, 0, 1, 3, 9, 11, 0, 0, 0, 0));
}

TEST_F(ReferenceTest, ShortcutAddsTheGradientOfItsInput) {
  const ShortcutSpec spec{{2, 2, 5, 4}, 6};
  RV_ASSERT_OK_AND_ASSIGN(auto op, backend_->MakeShortcut(spec));
  auto x = RandomValues<double>(1, spec.input.num_elements());
  const auto dy = RandomValues<double>(2, spec.Output().num_elements());
  std::vector<double> y(dy.size()), dx(x.size(), 3.0);
  const auto loss = [&] {
    op->Forward(x.data(), y.data());
    return Dot(y, dy);
  };
  op->BackwardAdd(dy.data(), dx.data());
  for (double& d : dx) d -= 3.0;  // what was there before
  ExpectGradient("x", x, dx, loss);
}

TEST_F(ReferenceTest, ElementwiseGradientsAreTheirDerivatives) {
  Elementwise<double>& op = backend_->elementwise();
  auto a = RandomValues<double>(1, 50);
  auto b = RandomValues<double>(2, 50);
  const auto dy = RandomValues<double>(3, 50);
  std::vector<double> y(50), dx(50);
  const auto relu = [&] {
    op.Relu(50, a.data(), y.data());
    return Dot(y, dy);
  };
  relu();
  op.ReluBackward(50, y.data(), dy.data(), dx.data());
  ExpectGradient("relu", a, dx, relu);
  const auto add_relu = [&] {
    op.AddRelu(50, a.data(), b.data(), y.data());
    return Dot(y, dy);
  };
  add_relu();
  op.ReluBackward(50, y.data(), dy.data(), dx.data());
  ExpectGradient("a of a + b", a, dx, add_relu);
  ExpectGradient("b of a + b", b, dx, add_relu);
  // The gradient that arrives as a sum passes like its sum.
  const auto other = RandomValues<double>(4, 50);
  std::vector<double> sum(50), split(50);
  for (int i = 0; i < 50; ++i) sum[i] = dy[i] + other[i];
  op.ReluBackward(50, y.data(), sum.data(), dx.data());
  op.AddReluBackward(50, y.data(), dy.data(), other.data(), split.data());
  EXPECT_EQ(split, dx);
}

TEST_F(ReferenceTest, SpecsThatMakeNoSenseAreRefusedByName) {
  using absl::StatusCode;
  EXPECT_THAT(
      backend_->MakeConvolution(Conv({0, 1, 3, 3}, 1, 3, 1, 1)),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("[0, 1, 3, 3]")));
  EXPECT_THAT(backend_->MakeConvolution(Conv({1, 1, 2, 2}, 1, 5, 1, 1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("kernel 5")));
  EXPECT_THAT(backend_->MakeConvolution(Conv({1, 1, 2, 2}, 1, 1, 0, 1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("stride 0")));
  EXPECT_THAT(backend_->MakeNormalization(Norm(
                  {1, 6, 2, 2}, NormalizationSpec::Kind::kGroup, 4, false)),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("4 does not divide the 6 channels")));
  EXPECT_THAT(backend_->MakeLinear({1, 0, 2}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("in 0")));
  EXPECT_THAT(backend_->MakePool({1, 1, 0, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("pooling")));
  EXPECT_THAT(backend_->MakeShortcut({{1, 4, 2, 2}, 7}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("7 output")));
}

}  // namespace
}  // namespace rivulet
