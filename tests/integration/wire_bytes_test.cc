// The bytes that a run reports against those that the kernel delivered.

#include <filesystem>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tcp_relay.h"

namespace rivulet {
namespace {

using ::rivulet::testing::ClusterResult;
using ::rivulet::testing::RunCluster;
using ::rivulet::testing::SmallConfig;
using ::rivulet::testing::TcpRelay;

// With one shard whose only address is a relay's, everything on the data path
// passes the relay; the control path is a small part of the rest.
TEST(WireBytesTest, ReportedBytesAreThoseOnTheSocket) {
  const std::string dir =
      std::filesystem::path(::testing::TempDir()) / "wire_bytes_test";
  std::filesystem::remove_all(dir);
  Config config = SmallConfig();
  config.compression.policy = "none";
  config.model.hidden = {256, 128};
  config.cluster.shards = 1;
  config.local.listen = "127.0.0.1:0";
  RV_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<TcpRelay> data,
                          TcpRelay::Start(/*target=*/""));
  config.local.advertise = data->address();
  std::unique_ptr<TcpRelay> control;
  const ClusterResult result = RunCluster(
      config,
      {.run_dir = dir,
       .through =
           [&](const std::string& controller) {
             control = *TcpRelay::Start(controller);
             return control->address();
           },
       .shard_listens =
           [&](int, const std::string& address) { data->SetTarget(address); }});
  RV_ASSERT_OK(result.status);
  const auto reported = [&](const char* key) {
    return result.summary.at(key).get<double>();
  };
  const double up =
      static_cast<double>(data->bytes_to_target() + control->bytes_to_target());
  const double down = static_cast<double>(data->bytes_from_target() +
                                          control->bytes_from_target());
  // HTTP/2's own housekeeping (settings, window updates, pings, the calls'
  // headers) is not counted; it is small beside what is.
  EXPECT_NEAR(reported("bytes_up") / up, 1.0, 0.03);
  EXPECT_NEAR(reported("bytes_down") / down, 1.0, 0.03);
  EXPECT_LT(reported("payload_up"), reported("bytes_up"));
}

}  // namespace
}  // namespace rivulet
