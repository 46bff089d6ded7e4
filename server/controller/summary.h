// summary.json: how a run ended.

#ifndef RIVULET_SERVER_CONTROLLER_SUMMARY_H_
#define RIVULET_SERVER_CONTROLLER_SUMMARY_H_

#include <string>

#include "common/daemon/run_plan.h"
#include "server/controller/run_metrics.h"

namespace rivulet {

// How a run ended, beyond what RunMetrics knows.
struct RunOutcome {
  std::string status;  // complete | stopped | failed
  std::string error;   // why, when failed; or the reason of a stop
  std::string job;
  std::string weights_sha256;  // empty without weights
};

// summary.json; common/daemon/README.md explains the keys.
std::string SummaryJson(const RunPlan& plan, const RunMetrics& metrics,
                        const RunOutcome& outcome);

// "complete", "stopped", "failed" of a summary's text; empty when it has none.
std::string StatusOfSummary(const std::string& json);

// "Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores".
std::string HostDescription();

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONTROLLER_SUMMARY_H_
