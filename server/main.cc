// rivulet-server: one shard of a run. See --help.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/child_process.h"
#include "common/daemon/daemon_main.h"
#include "server/shard_daemon.h"

namespace rivulet {
namespace {

absl::Status Run(const Config& config, const DaemonArguments& arguments) {
  RV_RETURN_IF_ERROR(LogToRunFolder(config, arguments.run_dir,
                                    absl::StrCat("shard-", arguments.index)));
  return RunShard(config, {.shard = arguments.index,
                           .resume = arguments.resume,
                           .run_dir = arguments.run_dir,
                           .stop_requested = StopSignalled});
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  return rivulet::DaemonMain(
      argc, argv,
      {.program = "rivulet-server",
       .description =
           "One shard of a run: owns a part of the weights, adds the workers' "
           "gradients and sends back what changed. Started by `rivulet train`, "
           "or by hand with the same config as everybody else.",
       .examples =
           "  rivulet-server --config run.yaml --shard 0\n"
           "  rivulet-server --config run.yaml --shard 1 --set "
           "local.listen=10.0.0.6:7071 --set cluster.controller=10.0.0.5:7070\n"
           "  rivulet-server --config run.yaml --shard 0 --run-dir /data/run1 "
           "--resume\n"
           "Ctrl-C asks the controller to checkpoint and stop the run. ",
       .index_option = "--shard",
       .index_help = "Which shard this is, 0 to cluster.shards - 1",
       .index_max = 255,
       .run = rivulet::Run});
}
