// rivulet-worker: one worker of a run. See --help.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/child_process.h"
#include "common/daemon/daemon_main.h"
#include "worker/worker_daemon.h"

namespace rivulet {
namespace {

absl::Status Run(const Config& config, const DaemonArguments& arguments) {
  RV_RETURN_IF_ERROR(LogToRunFolder(config, arguments.run_dir,
                                    absl::StrCat("worker-", arguments.index)));
  return RunWorker(config, {.rank = arguments.index,
                            .resume = arguments.resume,
                            .run_dir = arguments.run_dir,
                            .stop_requested = StopSignalled,
                            .before_push = nullptr});
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  return rivulet::DaemonMain(
      argc, argv,
      {.program = "rivulet-worker",
       .description =
           "One worker of a run: computes gradients on its part of each batch "
           "and exchanges them with the shards. Started by `rivulet train`, or "
           "by hand on each machine with the same config.",
       .examples =
           "  rivulet-worker --config run.yaml --rank 0\n"
           "  rivulet-worker --config run.yaml --rank 1 --set "
           "cluster.controller=10.0.0.5:7070 --set data.path=/data/cifar10\n"
           "  rivulet-worker --config run.yaml --rank 0 --run-dir /data/run1 "
           "--resume\n"
           "Ctrl-C asks the controller to checkpoint and stop the run. ",
       .index_option = "--rank",
       .index_help = "Which worker this is, 0 to cluster.workers - 1",
       .index_max = 1023,
       .run = rivulet::Run});
}
