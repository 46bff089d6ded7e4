// rivulet train: a whole cluster on this machine.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/child_process.h"
#include "common/daemon/config.h"
#include "common/daemon/exit_codes.h"
#include "common/daemon/grpc_util.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_plan.h"
#include "common/daemon/text_file.h"
#include "data/dataset.h"
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
std::atomic<int> interrupts = 0;
static_assert(std::atomic<int>::is_always_lock_free);
void OnInterrupt(int) { ++interrupts; }

// Follows a controller's Watch stream in a thread of its own and keeps the
// newest status. Thread-safe.
class StatusWatcher {
 public:
  explicit StatusWatcher(const std::string& address)
      : stub_(v1::Controller::NewStub(MakeChannel(address))),
        thread_([this] { Follow(); }) {}

  ~StatusWatcher() {
    context_.TryCancel();
    if (thread_.joinable()) thread_.join();
  }

  // Waits for the last status, once the controller has ended.
  v1::RunStatus Last() {
    thread_.join();
    return Newest();
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

// Reads what every worker will read, so that a missing or damaged file ends the
// command before anything is started or written.
absl::Status CheckData(const RunPlan& plan) {
  for (const Split split : {Split::kTrain, Split::kTest}) {
    RV_RETURN_IF_ERROR(OpenDataset(plan.dataset_options(), split).status());
  }
  return absl::OkStatus();
}

std::string ResumeCommandOf(const TrainArguments& arguments,
                            const std::string& called_as) {
  return ResumeCommand(called_as, "train", arguments.config, arguments.run_dir,
                       arguments.overrides);
}

// Whether the run has begun to leave something to go on from.
bool HasCheckpoints(const std::string& run_dir) {
  std::error_code error;  // what cannot be looked at is not there
  const std::filesystem::path folder = RunPaths(run_dir).checkpoints();
  return std::filesystem::is_directory(folder, error) &&
         !std::filesystem::is_empty(folder, error);
}

// Signals that come closer together than this are one: a terminal and a program
// such as timeout may each send theirs.
constexpr absl::Duration kOneInterrupt = absl::Milliseconds(300);

std::string StoppingLine(v1::RunStatus::Phase phase) {
  switch (phase) {
    case v1::RunStatus::TRAINING:
      return "stopping after a checkpoint; interrupt again to stop at once";
    case v1::RunStatus::FINISHING:
      return "the run is finishing; interrupt again to stop at once";
    default:
      return "stopping; interrupt again to stop at once";
  }
}

absl::Status Follow(LocalCluster& cluster, ProgressPrinter& printer) {
  StatusWatcher watcher(cluster.controller_address());
  int handled = 0;
  bool at_once = false;
  absl::Time first_interrupt = absl::InfiniteFuture();
  while (!cluster.Poll()) {
    if (interrupts > handled) {
      const bool first = handled == 0;
      handled = interrupts;
      if (first) {
        first_interrupt = absl::Now();
        printer.Say(StoppingLine(watcher.Newest().phase()));
        cluster.RequestStop();
      } else if (absl::Now() - first_interrupt > kOneInterrupt) {
        at_once = true;
        printer.Say("stopping at once");
        cluster.KillAll();
      }
    }
    printer.Show(watcher.Newest(), absl::Now());
    absl::SleepFor(absl::Milliseconds(100));
  }
  printer.Show(watcher.Last(), absl::Now());
  printer.Finish();
  if (at_once) {
    return absl::CancelledError(
        "stopped at once; --resume goes on from the newest complete "
        "checkpoint");
  }
  return cluster.Result();
}

absl::Status Train(const TrainArguments& arguments, const std::string& program,
                   const std::string& called_as) {
  RV_ASSIGN_OR_RETURN(const Config config,
                      LoadConfig(arguments.config, arguments.overrides));
  auto made = RunPlan::Create(config);
  if (!made.ok()) return Annotate(made.status(), arguments.config);
  const std::shared_ptr<const RunPlan> plan = *std::move(made);

  LocalClusterOptions options;
  options.program_dir = std::filesystem::path(program).parent_path();
  options.config_path = arguments.config;
  options.run_dir =
      arguments.run_dir.empty() ? config.local.run_dir : arguments.run_dir;
  options.overrides = arguments.overrides;
  options.resume = arguments.resume;
  options.workers = static_cast<int>(config.cluster.workers);
  options.shards = static_cast<int>(config.cluster.shards);
  options.cancelled = [] { return interrupts > 0; };

  RV_RETURN_IF_ERROR(CheckData(*plan));

  // A terminal that closes must not cost the work since the last checkpoint.
  CatchStopSignals(OnInterrupt);

  absl::PrintF(
      "training %s on %s: %d parameters, %d steps; %d workers, %d shards; "
      "files in %s\n",
      config.model.name, config.data.name, plan->manifest().num_parameters(),
      plan->total_steps(), options.workers, options.shards, options.run_dir);
  std::fflush(stdout);
  const std::string earlier_summary =
      ReadTextFile(RunPaths(options.run_dir).summary()).value_or("");
  RV_ASSIGN_OR_RETURN(std::unique_ptr<LocalCluster> cluster,
                      LocalCluster::Start(options));
  ProgressPrinter printer(stdout, isatty(STDOUT_FILENO) != 0, absl::Seconds(10),
                          options.resume);
  absl::Status result = Follow(*cluster, printer);
  if (!result.ok() && !absl::IsCancelled(result)) {
    const int code = ExitCodeFor(result);
    const bool retry = code == kExitFailure || code == kExitUnavailable;
    if (retry && HasCheckpoints(options.run_dir)) {
      absl::PrintF("to go on       %s\n",
                   ResumeCommandOf(arguments, called_as));
      std::fflush(stdout);
    }
    return result;
  }

  return PrintClosing(result, options.run_dir, earlier_summary,
                      ResumeCommandOf(arguments, called_as));
}

}  // namespace

void AddTrainCommand(CLI::App* app, const std::string& program,
                     const std::string& called_as, Command* run) {
  CLI::App* command = app->add_subcommand(
      "train", "Train: a controller, shards and workers on this machine");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("config", arguments->config, "YAML config of the run")
      ->required();
  command->add_option("--run-dir", arguments->run_dir,
                      "Folder for everything the run writes (default: "
                      "local.run_dir of the config, or runs/<its name>)");
  command
      ->add_option("--set", arguments->overrides,
                   "key.path=value: overrides one key of the config; may be "
                   "repeated")
      ->allow_extra_args(false);
  command->add_flag(
      "--resume", arguments->resume,
      "Go on from the newest checkpoint that everybody has; begin "
      "at step 0 where nobody has any");
  command->footer(
      "Ctrl-C once: checkpoint and stop (exit code 130); twice: stop at "
      "once.\n\n"
      "Examples:\n"
      "  rivulet train configs/quickstart.yaml\n"
      "  rivulet train configs/quickstart.yaml --run-dir /tmp/q --set "
      "train.epochs=1\n"
      "  rivulet train configs/quickstart.yaml --resume");
  command->callback([arguments, program, called_as, run] {
    *run = [arguments, program, called_as] {
      return Train(*arguments, program, called_as);
    };
  });
}

}  // namespace rivulet
