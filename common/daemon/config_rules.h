// What goes with what: combinations of keys that are known to be broken, each
// with the reason. CheckConfig and the reference both read this table.

#ifndef RIVULET_COMMON_DAEMON_CONFIG_RULES_H_
#define RIVULET_COMMON_DAEMON_CONFIG_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "common/daemon/config.h"

namespace rivulet {

struct ConfigRule {
  std::string key;   // the key that a message names
  std::string need;  // one sentence with the reason, Markdown
  // "found ...; allowed: ..." when broken, empty when all is well.
  std::string (*check)(const Config&);
};

const std::vector<ConfigRule>& ConfigRules();

struct ConfigComplaint {
  std::string key;
  std::string message;  // "found ...; allowed: ..."
};

// The first key out of range or rule that is broken, in the tables' order.
std::optional<ConfigComplaint> FindComplaint(const Config& config);

}  // namespace rivulet

#endif  // RIVULET_COMMON_DAEMON_CONFIG_RULES_H_
