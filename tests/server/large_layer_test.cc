// Layers of 8 and 64 MB through a shard; a binary of its own, because they take
// seconds.

#include <cstdint>
#include <string>

#include "tests/server/exchange_test_util.h"
#include "tests/server/server_test_util.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::Client;
using ::rivulet::testing::CommitOf;
using ::rivulet::testing::CoreOf;
using ::rivulet::testing::Hello;
using ::rivulet::testing::PlanOf;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::TestShard;

// Layers far beyond gRPC's message limit travel in pieces, both ways, with the
// default limits of gRPC on the client's side.
class LargeLayerTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(LargeLayerTest, TravelsWhole) {
  Config config = SmallConfig("none", 1);
  config.data.synthetic.height = 64;
  config.data.synthetic.width = 64;
  config.model.hidden = {GetParam()};  // a layer of 4096 x this many weights
  TestShard shard(config);
  auto oracle = CoreOf(PlanOf(config));
  FrameEncoder encoder;
  for (const Segment& s : oracle->segments()) {
    CompressedTensor tensor;
    tensor.size = s.size();
    tensor.dense = true;
    tensor.values.resize(static_cast<size_t>(s.size()));
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = static_cast<float>(i % 1000) * 1e-3f;
    }
    encoder.Add(static_cast<uint32_t>(s.local), tensor, 0, s.size());
  }
  const std::string bytes = encoder.Finish();
  ASSERT_GT(static_cast<int64_t>(bytes.size()), GetParam() * 4096 * 4);
  const v1::Commit commit = CommitOf(bytes, 16, 1);
  Client client(shard, Hello(0));
  RV_ASSERT_OK(client.ReadWelcome().status());
  client.SendPush(0, bytes, commit);
  RV_ASSERT_OK(oracle->SubmitPush(0, 0, 0, bytes, commit).status());
  RV_ASSERT_OK_AND_ASSIGN(auto expected, oracle->MakeUpdate(1));
  RV_ASSERT_OK_AND_ASSIGN(auto update, client.ReadUpdate());
  EXPECT_TRUE(update.bytes == expected->bytes);
}

INSTANTIATE_TEST_SUITE_P(MegaBytes8And64, LargeLayerTest,
                         ::testing::Values(512, 4096));

}  // namespace
}  // namespace rivulet
