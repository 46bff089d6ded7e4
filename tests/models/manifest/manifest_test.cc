#include "models/manifest/manifest.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Manifest Build(const ModelOptions& options) {
  absl::StatusOr<Manifest> manifest = BuildManifest(options);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return manifest.ok() ? *std::move(manifest) : Manifest();
}

int64_t SmallElements(const Manifest& manifest) {
  int64_t elements = 0;
  for (const TensorSpec& spec : manifest.parameters) {
    if (spec.is_small()) elements += spec.num_elements();
  }
  return elements;
}

std::vector<std::string> Names(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

// He et al. 2016, table 6: 0.27 M, 0.46 M, 0.66 M, 0.85 M and 1.7 M.
TEST(ManifestTest, ResNetsHaveThePublishedNumbersOfParameters) {
  const struct {
    const char* name;
    int64_t parameters;
  } kExpected[] = {{"resnet20", 269722},
                   {"resnet32", 464154},
                   {"resnet44", 658586},
                   {"resnet56", 853018},
                   {"resnet110", 1727962}};
  for (const auto& expected : kExpected) {
    EXPECT_EQ(Build({.name = expected.name}).num_parameters(),
              expected.parameters)
        << expected.name;
  }
}

TEST(ManifestTest, ResNet20HasPyTorchsTensors) {
  const Manifest manifest = Build({.name = "resnet20"});
  EXPECT_EQ(manifest.model, "resnet20");
  EXPECT_EQ(SmallElements(manifest), 1386);
  ASSERT_EQ(manifest.parameters.size(), 59u);  // 19 convolutions with norms, fc
  std::vector<std::string> names = Names(manifest.parameters);
  names.resize(9);
  EXPECT_THAT(names, ElementsAre("conv1.weight", "bn1.weight", "bn1.bias",
                                 "layer1.0.conv1.weight", "layer1.0.bn1.weight",
                                 "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                                 "layer1.0.bn2.weight", "layer1.0.bn2.bias"));
  EXPECT_EQ(manifest.parameters[57].name, "fc.weight");
  EXPECT_THAT(manifest.parameters[57].shape, ElementsAre(10, 64));
  EXPECT_EQ(manifest.parameters[58].name, "fc.bias");
  EXPECT_THAT(manifest.parameters[0].shape, ElementsAre(16, 3, 3, 3));
  for (const TensorSpec& spec : manifest.parameters) {
    if (spec.name == "layer3.0.conv1.weight") {
      EXPECT_THAT(spec.shape, ElementsAre(64, 32, 3, 3));
      EXPECT_EQ(spec.kind, TensorKind::kConvolution);
      EXPECT_EQ(spec.fan_in, 32 * 9);
      EXPECT_EQ(spec.fan_out, 64 * 9);
    }
  }
}

TEST(ManifestTest, BuffersFollowTheNormsInOrder) {
  const Manifest manifest = Build({.name = "resnet20"});
  ASSERT_EQ(manifest.buffers.size(), 2u * 19);
  EXPECT_EQ(manifest.buffers[0].name, "bn1.running_mean");
  EXPECT_EQ(manifest.buffers[0].init, Init::kZero);
  EXPECT_EQ(manifest.buffers[1].name, "bn1.running_var");
  EXPECT_EQ(manifest.buffers[1].init, Init::kOne);
  EXPECT_EQ(manifest.buffers[37].name, "layer3.2.bn2.running_var");
  EXPECT_EQ(manifest.num_buffer_elements(), 1386 - 10);
}

TEST(ManifestTest, GroupNormHasTheSameParametersAndNoBuffers) {
  const Manifest batch = Build({.name = "resnet32"});
  const Manifest group = Build({.name = "resnet32", .norm = NormKind::kGroup});
  EXPECT_EQ(Names(batch.parameters), Names(group.parameters));
  EXPECT_TRUE(group.buffers.empty());
}

TEST(ManifestTest, NamesAreUniqueAndSizesPositive) {
  for (const std::string& model : BuiltInModels()) {
    const Manifest manifest = Build({.name = model});
    std::set<std::string> names;
    for (const auto* specs : {&manifest.parameters, &manifest.buffers}) {
      for (const TensorSpec& spec : *specs) {
        EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
        EXPECT_GT(spec.num_elements(), 0) << spec.name;
      }
    }
  }
}

TEST(ManifestTest, MlpChainsItsLayers) {
  const Manifest manifest = Build({.name = "mlp",
                                   .num_classes = 7,
                                   .channels = 1,
                                   .height = 28,
                                   .width = 28,
                                   .hidden = {30, 20}});
  EXPECT_THAT(Names(manifest.parameters),
              ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
                          "fc3.weight", "fc3.bias"));
  EXPECT_THAT(manifest.parameters[0].shape, ElementsAre(30, 784));
  EXPECT_THAT(manifest.parameters[2].shape, ElementsAre(20, 30));
  EXPECT_THAT(manifest.parameters[4].shape, ElementsAre(7, 20));
  EXPECT_THAT(manifest.parameters[5].shape, ElementsAre(7));
  EXPECT_EQ(manifest.parameters[5].fan_in, 20);
  EXPECT_TRUE(manifest.buffers.empty());
}

TEST(ManifestTest, MlpWithoutHiddenLayersIsLinear) {
  const Manifest manifest = Build({.name = "mlp", .hidden = {}});
  EXPECT_THAT(Names(manifest.parameters),
              ElementsAre("fc1.weight", "fc1.bias"));
  EXPECT_THAT(manifest.parameters[0].shape, ElementsAre(10, 3072));
}

TEST(ManifestTest, TakesSmallGreyImages) {
  const Manifest manifest =
      Build({.name = "resnet20", .channels = 1, .height = 28, .width = 28});
  EXPECT_EQ(manifest.num_parameters(), 269722 - 2 * 16 * 9);
  EXPECT_THAT(BuildManifest({.height = 4, .width = 4}),
              ::rivulet::testing::IsOk());
}

TEST(ManifestTest, RefusesUnknownNamesWithTheNearest) {
  EXPECT_THAT(BuildManifest({.name = "resnet21"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"resnet21\""),
                             HasSubstr("did you mean \"resnet20\""),
                             HasSubstr("resnet110, mlp"))));
  EXPECT_THAT(BuildManifest({.name = "MLP"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean \"mlp\"")));
}

TEST(ManifestTest, RefusesImpossibleSizes) {
  const auto refused = [](const ModelOptions& options,
                          const std::string& reason) {
    EXPECT_THAT(
        BuildManifest(options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  };
  refused({.height = 3}, "height of an image is 3, allowed is 4 to");
  refused({.width = 0}, "width of an image is 0");
  refused({.channels = -1}, "channels of an image is -1");
  refused({.num_classes = 1}, "number of classes is 1");
  refused({.height = 1 << 24, .width = 1 << 24}, "too large");
  refused({.norm = NormKind::kGroup, .group_size = 3}, "group size is 3");
  refused({.norm = NormKind::kGroup, .group_size = 32}, "group size is 32");
  refused({.norm = NormKind::kGroup, .group_size = 0}, "group size is 0");
  refused({.name = "mlp", .hidden = {5, 0}}, "units of hidden layer 2 is 0");
  refused({.name = "mlp", .hidden = std::vector<int64_t>(65, 2)},
          "65 hidden layers");
  // Positions in a tensor have 32 bits.
  refused({.name = "mlp", .hidden = {65536, 65536}},
          "layer 2 has 65536 inputs times 65536 outputs, allowed are at most "
          "4294967295 weights");
  refused({.name = "mlp", .num_classes = 65536, .hidden = {65536}},
          "layer 2 has 65536 inputs");
  refused({.name = "mlp", .hidden = {1 << 24}}, "layer 1 has 3072 inputs");
  EXPECT_EQ(Build({.name = "mlp", .hidden = {65536, 65535}})
                .parameters[2]
                .num_elements(),
            int64_t{65536} * 65535);
}

TEST(ManifestTest, CanonicalTextDiffersWheneverAnythingDoes) {
  const Manifest manifest = Build({.name = "resnet20"});
  EXPECT_EQ(manifest.Canonical(), Build({.name = "resnet20"}).Canonical());
  std::set<std::string> texts = {manifest.Canonical()};
  const auto expect_new = [&](auto change) {
    Manifest changed = manifest;
    change(changed);
    EXPECT_TRUE(texts.insert(changed.Canonical()).second)
        << "change " << texts.size();
  };
  expect_new([](Manifest& m) { m.model = "other"; });
  expect_new([](Manifest& m) { m.parameters[1].name += "x"; });
  expect_new([](Manifest& m) { m.parameters[1].name += "\n"; });
  expect_new([](Manifest& m) { m.parameters[1].shape = {17}; });
  expect_new([](Manifest& m) { m.parameters[1].shape = {1, 6}; });
  expect_new([](Manifest& m) { m.parameters[1].kind = TensorKind::kBias; });
  expect_new([](Manifest& m) { m.parameters[1].decay = false; });
  expect_new([](Manifest& m) { m.parameters[1].fan_in = 9; });
  expect_new([](Manifest& m) { m.parameters[1].fan_out = 9; });
  expect_new([](Manifest& m) { m.parameters[1].init = Init::kZero; });
  expect_new([](Manifest& m) { m.parameters.pop_back(); });
  expect_new([](Manifest& m) { std::swap(m.parameters[1], m.parameters[2]); });
  expect_new([](Manifest& m) { m.buffers.pop_back(); });
  expect_new([](Manifest& m) {
    m.parameters.push_back(m.buffers.back());
    m.buffers.pop_back();
  });
}

}  // namespace
}  // namespace rivulet
