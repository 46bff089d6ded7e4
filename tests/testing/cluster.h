// A whole cluster in threads of one process, over loopback: the same code as
// the daemons', without processes.
//
//   ClusterResult result = RunCluster(config, {.run_dir = dir});
//   RV_ASSERT_OK(result.status);
//   result.summary["weights_sha256"]

#ifndef RIVULET_TESTS_TESTING_CLUSTER_H_
#define RIVULET_TESTS_TESTING_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/daemon/config.h"
#include "nlohmann/json.hpp"

namespace rivulet::testing {

struct ClusterOptions {
  std::string run_dir = {};
  bool resume = false;
  // Called before each worker's commit, from its thread. May be null.
  std::function<void(int rank, int64_t step)> before_push = nullptr;
  // Asks the controller to stop, with a checkpoint, once worker 0 has reached
  // this step; -1: never.
  int64_t stop_at_step = -1;
  // Called once with the controller's address and gives what the daemons dial
  // instead: a relay's. May be null.
  std::function<std::string(const std::string&)> through = nullptr;
  // Called with the address of each shard before it joins, from its thread. May
  // be null.
  std::function<void(int shard, const std::string&)> shard_listens = nullptr;
};

struct ClusterResult {
  // The controller's, or the first daemon's that has another: OK when complete,
  // Cancelled when stopped.
  absl::Status status;
  nlohmann::json summary;                   // null when there is none
  std::vector<std::vector<float>> weights;  // in manifest order, when complete
};

// Blocks until every thread has ended.
ClusterResult RunCluster(Config config, const ClusterOptions& options);

// A run folder of the running test's own, named `name` besides; it is not there
// yet.
std::string FreshDir(const std::string& name);

// A config that trains in about a second: an MLP on synthetic images.
Config SmallConfig();

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_CLUSTER_H_
