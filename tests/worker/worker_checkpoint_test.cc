#include "worker/worker_checkpoint.h"

#include <algorithm>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/worker_test_util.h"

namespace rivulet {
namespace {

using ::rivulet::testing::PlanOf;
using ::rivulet::testing::RecordingStream;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::testing::HasSubstr;

// A model and its compressors, filled with numbers of its own.
struct Rig {
  explicit Rig(uint64_t seed, const std::string& policy = "fixed")
      : plan(PlanOf(SmallConfig(policy, 1, 1))), stream(0) {
    model = *CreateModel(plan->model_options(), {.threads = 1});
    pipeline = *PushPipeline::Create(plan, {}, {&stream});
    RandomStream rng(seed, RandomPurpose::kTest);
    const auto fill = [&](absl::Span<float> values) {
      for (float& x : values) x = static_cast<float>(rng.Normal());
    };
    for (size_t i = 0; i < plan->manifest().parameters.size(); ++i) {
      fill(model->parameter(static_cast<int>(i)));
      auto* const c = pipeline->compressor(static_cast<int>(i));
      if (c == nullptr) continue;
      fill(c->momentum());
      fill(c->residual());
      c->set_selector_state({.threshold = rng.UniformFloat()});
    }
  }
  TensorFile Save() {
    return MakeWorkerCheckpoint({.total = 4, .in_a_row = 2}, *model, *pipeline);
  }
  absl::Status Restore(const TensorFile& file) {
    return RestoreWorkerCheckpoint(file, &voided, *model, *pipeline);
  }

  std::shared_ptr<const RunPlan> plan;
  RecordingStream stream;
  std::unique_ptr<Model> model;
  std::unique_ptr<PushPipeline> pipeline;
  VoidCounts voided;
};

void ExpectSame(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].shape, b.tensors[i].shape);
    EXPECT_EQ(a.tensors[i].values, b.tensors[i].values);
  }
}

TEST(WorkerCheckpointTest, RestoresEveryBitThroughAFile) {
  for (const char* policy : {"fixed", "none"}) {
    SCOPED_TRACE(policy);
    Rig one(1, policy);
    const TempFolder folder;
    RV_ASSERT_OK(WriteTensorFile(folder.File("w"), one.Save()));
    RV_ASSERT_OK_AND_ASSIGN(const TensorFile file,
                            ReadTensorFile(folder.File("w")));
    Rig two(2, policy);
    RV_ASSERT_OK(two.Restore(file));
    EXPECT_EQ(two.voided.total, 4);
    EXPECT_EQ(two.voided.in_a_row, 2);
    ExpectSame(one.Save(), two.Save());
  }
}

TEST(WorkerCheckpointTest, RefusesDamageAndChangesNothing) {
  Rig one(1);
  Rig two(2);
  const TensorFile before = two.Save();

  TensorFile file = one.Save();
  file.tensors.pop_back();
  const std::string lost = before.tensors.back().name;
  EXPECT_THAT(two.Restore(file),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(lost)));

  file = one.Save();
  file.tensors[0].values.push_back(0);
  EXPECT_THAT(two.Restore(file), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr(file.tensors[0].name)));

  file = one.Save();
  file.tensors.push_back({"extra", {1}, {0.0f}});
  EXPECT_THAT(two.Restore(file),
              StatusIs(absl::StatusCode::kFailedPrecondition));

  file = one.Save();
  const auto selector = std::find_if(
      file.metadata.begin(), file.metadata.end(),
      [](const auto& m) { return m.first.rfind("selector.", 0) == 0; });
  ASSERT_NE(selector, file.metadata.end());
  selector->second = "-12";
  EXPECT_THAT(two.Restore(file),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("selector")));
  ExpectSame(two.Save(), before);
}

}  // namespace
}  // namespace rivulet
