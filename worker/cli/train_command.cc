// rivulet train: a whole cluster on this machine.

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/config.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/run_plan.h"
#include "proto/controller.grpc.pb.h"
#include "worker/cli/commands.h"
#include "worker/cli/local_cluster.h"
#include "worker/cli/progress.h"

namespace rivulet {
namespace {

struct TrainArguments {
  std::string config;
  std::string run_dir;
  std::vector<std::string> overrides;
  bool resume = false;
};

// Interrupts so far. A signal handler may touch nothing but this.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
volatile sig_atomic_t interrupts = 0;
void OnInterrupt(int) { interrupts = interrupts + 1; }

// Follows a controller's Watch stream in a thread of its own and keeps the
// newest status. Thread-safe.
class StatusWatcher {
 public:
  explicit StatusWatcher(const std::string& address)
      : stub_(v1::Controller::NewStub(MakeChannel(address))),
        thread_([this] { Follow(); }) {}

  ~StatusWatcher() {
    context_.TryCancel();
    thread_.join();
  }

  v1::RunStatus Newest() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return newest_;
  }

 private:
  void Follow() {
    auto reader = stub_->Watch(&context_, v1::WatchRequest());
    v1::RunStatus status;
    while (reader->Read(&status)) {
      MutexLock lock(&mu_);
      newest_ = status;
    }
    // How the run ended is told by the processes' exit codes; a broken watch
    // only stops the progress line.
    (void)reader->Finish();
  }

  std::unique_ptr<v1::Controller::Stub> stub_;
  grpc::ClientContext context_;
  mutable Mutex mu_;
  v1::RunStatus newest_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // last: starts when all above is there
};

std::string DefaultRunDir(const Config& config) {
  return config.local.run_dir.empty() ? absl::StrCat("runs/", config.name)
                                      : config.local.run_dir;
}

absl::Status Follow(LocalCluster& cluster, ProgressPrinter& printer) {
  StatusWatcher watcher(cluster.controller_address());
  int handled = 0;
  while (!cluster.Poll()) {
    if (interrupts > handled) {
      ++handled;
      if (handled == 1) {
        printer.Say(
            "stopping after a checkpoint; interrupt again to stop at once");
        cluster.RequestStop();
      } else {
        printer.Say("stopping at once");
        cluster.KillAll();
      }
    }
    printer.Show(watcher.Newest(), absl::Now());
    absl::SleepFor(absl::Milliseconds(100));
  }
  printer.Show(watcher.Newest(), absl::Now());
  printer.Finish();
  if (handled >= 2) {
    return absl::CancelledError("stopped at once; no checkpoint was made");
  }
  return cluster.Result();
}

absl::Status Train(const TrainArguments& arguments,
                   const std::string& program) {
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(arguments.config, arguments.overrides));
  RV_ASSIGN_OR_RETURN(const std::shared_ptr<const RunPlan> plan,
                      RunPlan::Create(config));

  LocalClusterOptions options;
  options.program_dir = std::filesystem::path(program).parent_path();
  options.config_path = arguments.config;
  options.run_dir =
      arguments.run_dir.empty() ? DefaultRunDir(config) : arguments.run_dir;
  options.overrides = arguments.overrides;
  options.resume = arguments.resume;
  options.workers = static_cast<int>(config.cluster.workers);
  options.shards = static_cast<int>(config.cluster.shards);
  if (config.local.threads == 0) {
    const int64_t cores =
        std::max<int64_t>(1, std::thread::hardware_concurrency());
    options.overrides.push_back(
        absl::StrCat("local.threads=",
                     std::max<int64_t>(1, cores / config.cluster.workers)));
  }

  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);

  std::printf(
      "training %s on %s: %d parameters, %d steps; %d workers, %d shards; "
      "files in %s\n",
      config.model.name.c_str(), config.data.name.c_str(),
      static_cast<int>(plan->manifest().num_parameters()),
      static_cast<int>(plan->total_steps()), options.workers, options.shards,
      options.run_dir.c_str());
  std::fflush(stdout);
  RV_ASSIGN_OR_RETURN(std::unique_ptr<LocalCluster> cluster,
                      LocalCluster::Start(options));
  ProgressPrinter printer(stdout, isatty(STDOUT_FILENO) != 0,
                          absl::Seconds(10));
  RV_RETURN_IF_ERROR(Follow(*cluster, printer));

  std::ifstream in(options.run_dir + "/summary.json");
  const std::string summary((std::istreambuf_iterator<char>(in)), {});
  RV_ASSIGN_OR_RETURN(const std::string closing,
                      ClosingLines(summary, options.run_dir));
  std::fputs(closing.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddTrainCommand(CLI::App* app, const std::string& program, Command* run) {
  CLI::App* command = app->add_subcommand(
      "train", "Train: a controller, shards and workers on this machine");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("config", arguments->config, "YAML config of the run")
      ->required();
  command->add_option("--run-dir", arguments->run_dir,
                      "Folder for everything the run writes (default: "
                      "runs/<name of the config>)");
  command
      ->add_option("--set", arguments->overrides,
                   "key.path=value: overrides one key of the config; may be "
                   "repeated")
      ->allow_extra_args(false);
  command->add_flag("--resume", arguments->resume,
                    "Go on from the newest complete checkpoint");
  command->footer(
      "Ctrl-C once: checkpoint and stop; twice: stop at once.\n\n"
      "Examples:\n"
      "  rivulet train configs/quickstart.yaml\n"
      "  rivulet train configs/quickstart.yaml --run-dir /tmp/q --set "
      "train.epochs=1\n"
      "  rivulet train configs/quickstart.yaml --resume");
  command->callback([arguments, program, run] {
    *run = [arguments, program] { return Train(*arguments, program); };
  });
}

}  // namespace rivulet
