// rivulet-controller: sees one run from the first join to its end. See --help.

#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "common/base/status_macros.h"
#include "common/base/sync.h"
#include "common/daemon/child_process.h"
#include "common/daemon/daemon_main.h"
#include "server/controller/controller.h"

namespace rivulet {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);

// Runs the controller while a second thread turns a signal into a request.
absl::Status RunStoppable(Controller& controller) {
  Notification done;
  std::thread watcher([&] {
    while (!done.WaitForNotificationWithTimeout(kPoll)) {
      if (StopSignalled()) {
        controller.RequestStop("the controller was told to stop");
        return;
      }
    }
  });
  absl::Status status = controller.Run();
  done.Notify();
  watcher.join();
  return status;
}

absl::Status Run(const Config& config, const DaemonArguments& arguments) {
  RV_ASSIGN_OR_RETURN(
      const std::unique_ptr<Controller> controller,
      Controller::Create(config, arguments.run_dir, arguments.resume));
  // After Create: a folder that belongs to another run gets no log of this one.
  RV_RETURN_IF_ERROR(LogToRunFolder(config, arguments.run_dir, "controller"));
  RV_ASSIGN_OR_RETURN(const std::string address, controller->Start());
  if (arguments.ready_fd >= 0) {
    RV_RETURN_IF_ERROR(WriteAndClose(arguments.ready_fd, address + "\n"));
  }
  return RunStoppable(*controller);
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
