#include "server/listen.h"

#include <string>

#include "server/shard_service.h"
#include "tests/testing/status_matchers.h"

namespace rivulet {
namespace {

using ::rivulet::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

void ShutDown(Listener& listener) {
  listener.server->Shutdown();
  listener.server->Wait();
}

TEST(ListenTest, PicksAFreePortAndSaysWhich) {
  ShardService service{StreamLimits()};
  RV_ASSERT_OK_AND_ASSIGN(Listener listener,
                          Listen("127.0.0.1:0", "local.listen", &service));
  EXPECT_THAT(listener.address, ::testing::MatchesRegex("127.0.0.1:[1-9].*"));
  ShutDown(listener);
}

TEST(ListenTest, TakesAHostName) {
  ShardService service{StreamLimits()};
  RV_ASSERT_OK_AND_ASSIGN(Listener listener,
                          Listen("localhost:0", "local.listen", &service));
  EXPECT_THAT(listener.address, ::testing::MatchesRegex("localhost:[1-9].*"));
  ShutDown(listener);
}

TEST(ListenTest, SaysThatAPortIsBusy) {
  ShardService service{StreamLimits()};
  RV_ASSERT_OK_AND_ASSIGN(Listener first,
                          Listen("127.0.0.1:0", "local.listen", &service));
  ShardService other{StreamLimits()};
  EXPECT_THAT(Listen(first.address, "local.listen", &other).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(first.address), HasSubstr("in use"),
                             HasSubstr("local.listen"))));
  ShutDown(first);
}

TEST(ListenTest, SaysThatAnAddressIsNotThisMachines) {
  ShardService service{StreamLimits()};
  // TEST-NET-1: nobody has it.
  EXPECT_THAT(Listen("192.0.2.1:0", "local.listen", &service).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("192.0.2.1:0"),
                             HasSubstr("does not have that address"))));
}

TEST(ListenTest, RefusesWhatIsNoAddress) {
  ShardService service{StreamLimits()};
  for (const std::string address :
       {"", "localhost", "localhost:", ":70", "host:70000", "host:-1", "h:x"}) {
    EXPECT_THAT(
        Listen(address, "local.listen", &service).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host:port")))
        << address;
  }
  EXPECT_THAT(
      Listen("no-such-host.invalid:1", "local.listen", &service).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("no-such-host.invalid")));
}

}  // namespace
}  // namespace rivulet
