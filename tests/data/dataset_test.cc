#include "data/dataset.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DatasetTest, DescribesEveryBuiltInSetWithoutFiles) {
  for (const std::string& name : BuiltInDatasets()) {
    RV_ASSERT_OK_AND_ASSIGN(const DatasetInfo info,
                            DescribeDataset({.name = name}));
    EXPECT_EQ(info.num_classes, 10) << name;
    EXPECT_GT(info.train_size, info.test_size) << name;
  }
  RV_ASSERT_OK_AND_ASSIGN(const DatasetInfo cifar,
                          DescribeDataset({.name = "cifar10"}));
  EXPECT_EQ(cifar.shape.size(), 3072);
  EXPECT_EQ(cifar.train_size, 50000);
  EXPECT_EQ(cifar.test_size, 10000);
  RV_ASSERT_OK_AND_ASSIGN(const DatasetInfo fashion,
                          DescribeDataset({.name = "fashion_mnist"}));
  EXPECT_EQ(fashion.shape.size(), 784);
  EXPECT_EQ(fashion.train_size, 60000);
}

TEST(DatasetTest, TheDescriptionIsWhatIsOpened) {
  const DatasetOptions options{.name = "synthetic",
                               .synthetic_train = 30,
                               .synthetic_test = 7,
                               .synthetic_classes = 4,
                               .synthetic_shape = {2, 6, 5}};
  RV_ASSERT_OK_AND_ASSIGN(const DatasetInfo info, DescribeDataset(options));
  RV_ASSERT_OK_AND_ASSIGN(const auto train,
                          OpenDataset(options, Split::kTrain));
  RV_ASSERT_OK_AND_ASSIGN(const auto test, OpenDataset(options, Split::kTest));
  EXPECT_EQ(train->size(), info.train_size);
  EXPECT_EQ(test->size(), info.test_size);
  EXPECT_EQ(train->num_classes(), info.num_classes);
  EXPECT_EQ(train->shape().size(), info.shape.size());
  EXPECT_EQ(train->mean().size(), 2u);
}

TEST(DatasetTest, RefusesUnknownNamesWithTheNearest) {
  EXPECT_THAT(OpenDataset({.name = "cifar-10"}, Split::kTrain).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("did you mean \"cifar10\""),
                             HasSubstr("fashion_mnist, mnist, synthetic"))));
}

TEST(DatasetTest, AsksForAPath) {
  EXPECT_THAT(OpenDataset({.name = "mnist"}, Split::kTrain).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data set mnist: no path")));
}

TEST(DatasetTest, NamesAMissingFolder) {
  for (const char* name : {"cifar10", "mnist", "fashion_mnist"}) {
    EXPECT_THAT(
        OpenDataset({.name = name, .path = "/no/such"}, Split::kTest).status(),
        StatusIs(absl::StatusCode::kNotFound,
                 AllOf(HasSubstr("/no/such"), HasSubstr(name))));
  }
}

TEST(DatasetTest, RefusesImpossibleSyntheticSizes) {
  const auto refused = [](DatasetOptions options, const char* reason) {
    options.name = "synthetic";
    EXPECT_THAT(
        DescribeDataset(options).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  };
  refused({.synthetic_train = 0}, "number of training images is 0");
  refused({.synthetic_test = -1}, "number of test images is -1");
  refused({.synthetic_classes = 1}, "number of classes is 1");
  refused({.synthetic_shape = {0, 8, 8}}, "channels is 0");
  refused({.synthetic_shape = {3, 8, 2000}}, "width is 2000");
  refused({.synthetic_classes = 1000, .synthetic_shape = {3, 1024, 1024}},
          "bytes of an image times classes");
}

}  // namespace
}  // namespace rivulet
