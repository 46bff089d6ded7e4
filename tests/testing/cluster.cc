#include "tests/testing/cluster.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/daemon/run_plan.h"
#include "gtest/gtest.h"
#include "models/checkpoint/tensor_file.h"
#include "server/controller/controller.h"
#include "server/shard_daemon.h"
#include "worker/worker_daemon.h"

namespace rivulet::testing {
namespace {

absl::StatusOr<std::vector<std::vector<float>>> ReadWeights(
    const Config& config, const std::string& run_dir) {
  RV_ASSIGN_OR_RETURN(const TensorFile file,
                      ReadTensorFile(run_dir + "/weights.safetensors"));
  RV_ASSIGN_OR_RETURN(const std::shared_ptr<const RunPlan> plan,
                      RunPlan::Create(config));
  std::vector<std::vector<float>> weights;
  for (const TensorSpec& spec : plan->manifest().parameters) {
    const NamedTensor* tensor = file.Find(spec.name);
    if (tensor == nullptr) return absl::NotFoundError(spec.name);
    weights.push_back(tensor->values);
  }
  return weights;
}

// Runs all daemons of `config` and returns the controller's word. When that is
// no failure, all must have it, or the first other one is returned.
absl::Status RunDaemons(const Config& config, const ClusterOptions& options,
                        Controller& controller) {
  std::vector<absl::Status> results(config.cluster.shards +
                                    config.cluster.workers);
  std::vector<std::thread> threads;
  for (int shard = 0; shard < config.cluster.shards; ++shard) {
    threads.emplace_back([&, shard] {
      const auto on_listening = [&, shard](const std::string& address) {
        if (options.shard_listens) options.shard_listens(shard, address);
      };
      results[shard] = RunShard(config, {.shard = shard,
                                         .resume = options.resume,
                                         .run_dir = options.run_dir,
                                         .stop_requested = nullptr,
                                         .on_listening = on_listening});
    });
  }
  for (int rank = 0; rank < config.cluster.workers; ++rank) {
    threads.emplace_back([&, rank] {
      const auto before_push = [&, rank](int64_t step) {
        if (rank == 0 && step == options.stop_at_step) {
          controller.RequestStop("the test asks");
        }
        // Time for the stop to take effect before a short run is over.
        if (rank == 0 && options.stop_at_step >= 0 &&
            step > options.stop_at_step) {
          absl::SleepFor(absl::Milliseconds(100));
        }
        if (options.before_push) options.before_push(rank, step);
      };
      results[config.cluster.shards + rank] =
          RunWorker(config, {.rank = rank,
                             .resume = options.resume,
                             .run_dir = options.run_dir,
                             .stop_requested = nullptr,
                             .before_push = before_push});
    });
  }
  const absl::Status status = controller.Run();
  for (std::thread& thread : threads) thread.join();
  if (!status.ok() && !absl::IsCancelled(status)) return status;
  for (const absl::Status& result : results) {
    if (result == status) continue;
    return result.ok() ? absl::InternalError("a daemon has missed the stop")
                       : result;
  }
  return status;
}

}  // namespace

ClusterResult RunCluster(Config config, const ClusterOptions& options) {
  ClusterResult result;
  config.cluster.controller = "127.0.0.1:0";
  absl::StatusOr<std::unique_ptr<Controller>> controller =
      Controller::Create(config, options.run_dir, options.resume);
  if (!controller.ok()) {
    result.status = controller.status();
    return result;
  }
  const absl::StatusOr<std::string> address = (*controller)->Start();
  if (!address.ok()) {
    result.status = address.status();
    return result;
  }
  config.cluster.controller =
      options.through ? options.through(*address) : *address;
  result.status = RunDaemons(config, options, **controller);

  std::ifstream in(options.run_dir + "/summary.json");
  result.summary = nlohmann::json::parse(in, nullptr, false);
  if (result.status.ok()) {
    absl::StatusOr<std::vector<std::vector<float>>> weights =
        ReadWeights(config, options.run_dir);
    result.status.Update(weights.status());
    if (weights.ok()) result.weights = *std::move(weights);
  }
  return result;
}

std::string FreshDir(const std::string& name) {
  const ::testing::TestInfo* test =
      ::testing::UnitTest::GetInstance()->current_test_info();
  std::string leaf =
      absl::StrCat(test->test_suite_name(), "-", test->name(), "-", name);
  std::replace(leaf.begin(), leaf.end(), '/', '-');
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / "cluster" / leaf;
  std::filesystem::remove_all(dir);
  return dir;
}

Config SmallConfig() {
  Config config;
  config.name = "small";
  config.model.name = "mlp";
  config.model.hidden = {32, 16};
  config.data.name = "synthetic";
  config.data.augment = "none";
  config.data.synthetic = {.train = 512,
                           .test = 128,
                           .classes = 4,
                           .channels = 1,
                           .height = 8,
                           .width = 8,
                           .seed = 1};
  config.train.epochs = 4;
  config.train.batch_size = 32;
  config.optimizer.learning_rate = 0.05;
  config.compression.policy = "fixed";
  config.compression.density = 0.2;
  config.cluster.workers = 2;
  config.cluster.shards = 2;
  config.cluster.join_timeout = absl::Seconds(30);
  config.checkpoint.every = absl::ZeroDuration();
  config.checkpoint.every_steps = 20;
  config.local.threads = 1;
  return config;
}

}  // namespace rivulet::testing
