// A TCP relay on loopback for tests: stands between two peers, counts the bytes
// of each direction as the kernel delivers them, and can delay them or cut the
// connections. It knows nothing of what it carries.
//
//   RV_ASSERT_OK_AND_ASSIGN(auto relay, TcpRelay::Start("127.0.0.1:5000"));
//   Dial(relay->address()); ...
//   EXPECT_NEAR(relay->bytes_to_target(), counted, 0.02 * counted);
//
// Thread-safe.

#ifndef RIVULET_TESTS_TESTING_TCP_RELAY_H_
#define RIVULET_TESTS_TESTING_TCP_RELAY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/sync.h"

namespace rivulet::testing {

class TcpRelay {
 public:
  // Listens on a free loopback port and forwards each connection to `target`
  // (host:port, IPv4). The target may start listening later; before SetTarget
  // an empty one refuses every connection.
  static absl::StatusOr<std::unique_ptr<TcpRelay>> Start(
      const std::string& target);
  ~TcpRelay();  // cuts everything

  const std::string& address() const { return address_; }
  // For connections from here on.
  void SetTarget(const std::string& target) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t bytes_to_target() const { return to_target_; }
  int64_t bytes_from_target() const { return from_target_; }

  // Each piece is forwarded this much later.
  void SetDelay(absl::Duration delay);
  // Nothing passes from here on, and nobody is told: a link that has gone dead.
  void Mute() { mute_ = true; }
  // Resets every open connection; new ones are taken again.
  void CutConnections() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Connection;
  TcpRelay(int listener, std::string address, std::string target);
  void Accept() ABSL_LOCKS_EXCLUDED(mu_);
  void Forward(Connection* connection);

  const int listener_;
  const std::string address_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> delay_us_{0};
  std::atomic<bool> mute_{false};
  std::atomic<int64_t> to_target_{0};
  std::atomic<int64_t> from_target_{0};
  Mutex mu_;
  std::string target_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  std::thread accepter_;
};

}  // namespace rivulet::testing

#endif  // RIVULET_TESTS_TESTING_TCP_RELAY_H_
