#include "server/controller/progress_file.h"

#include <cstdint>
#include <string>

#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ProgressFileTest, ProgressComesBackAsItWas) {
  const RunTotals totals = {.bytes_up = 1,
                            .bytes_down = int64_t{1} << 60,
                            .payload_up = 3,
                            .payload_down = 4,
                            .steady_bytes_up = 5,
                            .steady_worker_steps = 6,
                            .samples = 7,
                            .seconds = 0.1,
                            .counted_from = 8};
  RV_ASSERT_OK_AND_ASSIGN(RunTotals back,
                          ParseProgressJson("p", ProgressJson(totals)));
  EXPECT_EQ(back.bytes_down, int64_t{1} << 60);
  EXPECT_EQ(back.samples, 7);
  EXPECT_EQ(back.seconds, 0.1);
  EXPECT_EQ(back.counted_from, 8);
  EXPECT_THAT(
      ParseProgressJson("p", "{}").status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("p: no integer")));
  for (const char* value : {"-1", "18446744073709551615", "1.5", "\"1\""}) {
    std::string text = ProgressJson(totals);
    text.replace(text.find("\"samples\": 7") + 11, 1, value);
    EXPECT_THAT(
        ParseProgressJson("p", text).status(),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no integer samples")))
        << text;
  }
  EXPECT_THAT(ParseProgressJson("p", "").status(),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace rivulet
