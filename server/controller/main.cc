// rivulet-controller: sees one run from the first join to its end. See --help.

#include <memory>
#include <string>

#include "common/base/status_macros.h"
#include "common/daemon/child_process.h"
#include "common/daemon/daemon_main.h"
#include "common/daemon/stop_watcher.h"
#include "server/controller/controller.h"

namespace rivulet {
namespace {

absl::Status Run(const Config& config, const DaemonArguments& arguments) {
  RV_ASSIGN_OR_RETURN(
      const std::unique_ptr<Controller> controller,
      Controller::Create(config, arguments.run_dir, arguments.resume));
  RV_ASSIGN_OR_RETURN(const std::string address, controller->Start());
  // Now: a folder in which nothing can begin gets no log.
  RV_RETURN_IF_ERROR(LogToRunFolder(config, arguments.run_dir, "controller"));
  if (arguments.ready_fd >= 0) {
    RV_RETURN_IF_ERROR(WriteAndClose(arguments.ready_fd, address + "\n"));
  }
  const StopWatcher watcher(StopSignalled, [&] {
    controller->RequestStop("the controller was told to stop");
  });
  return controller->Run();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  return rivulet::DaemonMain(
      argc, argv,
      {.program = "rivulet-controller",
       .description =
           "The controller of a run: waits for shards and workers, keeps the "
           "run's folder, and writes metrics, weights and the summary. Started "
           "by `rivulet train`, or by hand with the same config as everybody "
           "else.",
       .examples =
           "  rivulet-controller --config run.yaml\n"
           "  rivulet-controller --config run.yaml --set "
           "cluster.controller=0.0.0.0:7070 --run-dir /data/run1\n"
           "  rivulet-controller --config run.yaml --run-dir /data/run1 "
           "--resume\n"
           "It listens on cluster.controller. Ctrl-C checkpoints and stops the "
           "run. ",
       .index_option = "",
       .index_help = "",
       .writes_ready_fd = true,
       .run = rivulet::Run});
}
