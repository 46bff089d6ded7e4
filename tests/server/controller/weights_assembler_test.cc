#include "server/controller/weights_assembler.h"

#include <string>
#include <vector>

#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

std::shared_ptr<const RunPlan> ResNetPlan() {
  Config config = SmallConfig("fixed");
  config.model.name = "resnet20";
  config.data.synthetic.channels = 3;
  config.data.synthetic.height = 32;
  config.data.synthetic.width = 32;
  return PlanOf(config);
}

v1::WeightsPart Part(uint32_t tensor, uint64_t begin,
                     const std::vector<float>& values, bool buffers = false) {
  v1::WeightsPart part;
  part.set_tensor(tensor);
  part.set_buffers(buffers);
  part.set_begin(begin);
  part.set_data(reinterpret_cast<const char*>(values.data()),
                values.size() * sizeof(float));
  return part;
}

TEST(WeightsAssemblerTest, PutsPiecesOfAnyOrderIntoNamedTensors) {
  const auto plan = ResNetPlan();
  const Manifest& manifest = plan->manifest();
  WeightsAssembler assembler(plan);
  for (size_t t = manifest.parameters.size(); t-- > 0;) {
    const int64_t size = manifest.parameters[t].num_elements();
    const int64_t half = size / 2;
    const uint32_t tensor = static_cast<uint32_t>(t);
    RV_ASSERT_OK(assembler.Add(
        Part(tensor, static_cast<uint64_t>(half),
             std::vector<float>(static_cast<size_t>(size - half), 2.0f))));
    RV_ASSERT_OK(assembler.Add(
        Part(tensor, 0, std::vector<float>(static_cast<size_t>(half), 1.0f))));
  }
  std::vector<float> buffers(
      static_cast<size_t>(manifest.num_buffer_elements()));
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i] = static_cast<float>(i);
  }
  RV_ASSERT_OK(assembler.Add(Part(0, 0, buffers, true)));
  RV_ASSERT_OK_AND_ASSIGN(const TensorFile file, assembler.Finish());
  ASSERT_EQ(file.tensors.size(),
            manifest.parameters.size() + manifest.buffers.size());
  EXPECT_EQ(file.tensors[0].name, manifest.parameters[0].name);
  EXPECT_EQ(file.tensors[0].shape, manifest.parameters[0].shape);
  EXPECT_EQ(file.tensors[0].values.front(), 1.0f);
  EXPECT_EQ(file.tensors[0].values.back(), 2.0f);
  const NamedTensor* second = file.Find(manifest.buffers[1].name);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->values.front(),
            static_cast<float>(manifest.buffers[0].num_elements()));
  EXPECT_EQ(file.metadata.at("model"), "resnet20");
}

TEST(WeightsAssemblerTest, NamesWhatIsNotWhole) {
  const auto plan = ResNetPlan();
  WeightsAssembler assembler(plan);
  RV_ASSERT_OK(assembler.Add(Part(0, 0, {1.0f})));
  EXPECT_THAT(assembler.Finish().status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(plan->manifest().parameters[0].name)));
}

TEST(WeightsAssemblerTest, RefusesRangesThatOverlapOrDoNotExist) {
  const auto plan = ResNetPlan();
  WeightsAssembler assembler(plan);
  RV_ASSERT_OK(assembler.Add(Part(0, 4, {1, 1, 1, 1})));
  for (const uint64_t begin : {1u, 4u, 5u, 7u}) {
    EXPECT_THAT(
        assembler.Add(Part(0, begin, {1, 1, 1, 1})),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlap")))
        << begin;
  }
  EXPECT_THAT(assembler.Add(Part(0, 8, {1})), IsOk());
  EXPECT_THAT(assembler.Add(Part(0, 0, {1, 1, 1, 1})), IsOk());
  EXPECT_THAT(assembler.Add(Part(10000, 0, {1})),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(assembler.Add(Part(0, ~uint64_t{0}, {1})),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(assembler.Add(Part(0, 431, {1, 1})),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("of 432")));
  v1::WeightsPart odd;
  odd.set_data("abc");
  EXPECT_THAT(assembler.Add(odd), StatusIs(absl::StatusCode::kInvalidArgument));
  odd.clear_data();
  EXPECT_THAT(assembler.Add(odd), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace rivulet
