// What a controller finds in its run folder.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/daemon/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/controller.grpc.pb.h"
#include "server/controller/complete_markers.h"
#include "tests/server/controller/controller_test_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_folder.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Daemon;
using ::rivulet::testing::Hello;
using ::rivulet::testing::StatusIs;
using ::rivulet::testing::TempFolder;
using ::rivulet::testing::TestConfig;
using ::rivulet::testing::TestController;
using ::rivulet::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ControllerTest, AResumedRunWithoutACommonCheckpointIsRefused) {
  const TempFolder folder;
  WriteBytes(folder.File("job"), std::string(32, 'a') + "\n");
  RV_ASSERT_OK(MarkCheckpointComplete(RunPaths(folder.path()), 4, "job", 2));
  const Config config = TestConfig();
  TestController controller(config, folder.path(), /*resume=*/true);
  std::vector<std::unique_ptr<Daemon>> daemons;
  for (int i = 0; i < 3; ++i) {
    v1::Hello hello = i < 2 ? Hello(config, v1::ROLE_WORKER, i)
                            : Hello(config, v1::ROLE_SHARD, 0);
    hello.set_resume(true);
    if (i != 1) hello.add_checkpoints(20);
    daemons.push_back(std::make_unique<Daemon>(controller, hello));
  }
  for (auto& daemon : daemons) {
    RV_ASSERT_OK_AND_ASSIGN(auto finish, daemon->ReadFinish());
    EXPECT_EQ(finish.code(), static_cast<int>(absl::StatusCode::kNotFound));
    EXPECT_THAT(finish.message(), HasSubstr("worker 1 has none"));
  }
  EXPECT_THAT(controller.Result(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(std::filesystem::exists(folder.File("summary.json")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("metrics.csv")));
}

TEST(ControllerTest, AMissingJobFileIsNotReplacedWhereThereAreCheckpoints) {
  const TempFolder folder;
  RV_ASSERT_OK(MarkCheckpointComplete(RunPaths(folder.path()), 4, "job", 2));
  EXPECT_THAT(Controller::Create(TestConfig(), folder.path(), true).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(folder.File("job")),
                             HasSubstr("missing or empty"))));
  EXPECT_FALSE(std::filesystem::exists(folder.File("job")));
}

// Whether a config without a config.yaml to compare with fits the checkpoints
// is for their owners to say; a refused one must not look like the run's.
TEST(ControllerTest, ALostConfigIsNotReplacedBeforeTheRunGoesOn) {
  const TempFolder folder;
  WriteBytes(folder.File("job"), std::string(32, 'a') + "\n");
  RV_ASSERT_OK(MarkCheckpointComplete(RunPaths(folder.path()), 4, "job", 2));
  for (const bool empty : {false, true}) {
    if (empty) WriteBytes(folder.File("config.yaml"), "");
    { TestController controller(TestConfig(), folder.path(), /*resume=*/true); }
    std::error_code error;  // none there counts as empty
    const auto size =
        std::filesystem::file_size(folder.File("config.yaml"), error);
    EXPECT_TRUE(error || size == 0) << size;
  }
}

TEST(ControllerTest, ADamagedJobFileIsNamed) {
  const TempFolder folder;
  const Config config = TestConfig();
  for (const char* text : {"0123", "not a job at all, but of a good length  ",
                           "0123456789ABCDEF0123456789ABCDEF\n"}) {
    WriteBytes(folder.File("job"), text);
    EXPECT_THAT(Controller::Create(config, folder.path(), true).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(folder.File("job")),
                               HasSubstr("32 hexadecimal digits"))));
  }
}

TEST(ControllerTest, ASecondControllerFindsFolderAndPortTaken) {
  const TempFolder folder;
  Config config = TestConfig();
  TestController controller(config, folder.path());
  EXPECT_THAT(Controller::Create(config, folder.path(), false).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  const TempFolder other_folder;
  const std::string fresh = other_folder.File("fresh");
  config.cluster.controller = controller.address();
  {
    RV_ASSERT_OK_AND_ASSIGN(auto other,
                            Controller::Create(config, fresh, false));
    EXPECT_THAT(other->Start().status(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(controller.address()),
                               HasSubstr("cluster.controller"))));
  }
  EXPECT_FALSE(std::filesystem::exists(fresh)) << "nothing half-done stays";
}

}  // namespace
}  // namespace rivulet
