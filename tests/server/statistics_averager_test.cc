#include "server/statistics_averager.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::IsOk;
using ::rivulet::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

TEST(StatisticsAveragerTest, AveragesRanksAndStartsAnew) {
  StatisticsAverager averager(2, 3);
  EXPECT_THAT(averager.Add(2, Bytes({3, 30})), IsOk());
  EXPECT_THAT(averager.Add(0, Bytes({1, 10})), IsOk());
  EXPECT_FALSE(averager.ready());
  EXPECT_THAT(averager.Add(1, Bytes({2, 20})), IsOk());
  ASSERT_TRUE(averager.ready());
  EXPECT_THAT(averager.TakeMean(), ElementsAre(2.0f, 20.0f));
  EXPECT_FALSE(averager.ready());
}

TEST(StatisticsAveragerTest, RecognizesARepetitionAndRefusesAnotherOne) {
  StatisticsAverager averager(1, 2);
  RV_ASSERT_OK(averager.Add(0, Bytes({1})));
  EXPECT_THAT(averager.Add(0, Bytes({1})), IsOk());
  EXPECT_THAT(
      averager.Add(0, Bytes({2})),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("worker 0")));
  RV_ASSERT_OK(averager.Add(1, Bytes({3})));
  EXPECT_THAT(averager.TakeMean(), ElementsAre(2.0f));
}

TEST(StatisticsAveragerTest, RefusesAnotherLengthAndWhatIsNotFinite) {
  StatisticsAverager averager(2, 1);
  EXPECT_THAT(averager.Add(0, Bytes({1})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("4 bytes, expected 8")));
  EXPECT_THAT(
      averager.Add(0, Bytes({1, std::numeric_limits<float>::quiet_NaN()})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("value 1")));
  EXPECT_FALSE(averager.ready());
}

}  // namespace
}  // namespace rivulet
