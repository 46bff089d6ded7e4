#include "common/base/num_cores.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(NumCoresTest, CountsThoseOfTheAffinityMask) {
  // Of a thread of its own, so that the mask of the others stays.
  std::thread([] {
    cpu_set_t all;
    CPU_ZERO(&all);
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    EXPECT_LE(NumCores(), CPU_COUNT(&all));
    EXPECT_GE(NumCores(), 1);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &all)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(NumCores(), 1);
  }).join();
}

TEST(NumCoresTest, ReadsAControlGroupsShare) {
  EXPECT_EQ(CoresOfCpuMax("max 100000\n"), 0);
  EXPECT_EQ(CoresOfCpuMax("200000 100000\n"), 2);
  EXPECT_EQ(CoresOfCpuMax("250000 100000"), 2) << "whole ones";
  EXPECT_EQ(CoresOfCpuMax("50000 100000"), 1) << "at least one";
  EXPECT_EQ(CoresOfCpuMax(""), 0);
  EXPECT_EQ(CoresOfCpuMax("100000"), 0);
  EXPECT_EQ(CoresOfCpuMax("100000 0"), 0);
  EXPECT_EQ(CoresOfCpuMax("-1 100000"), 0);
}

}  // namespace
}  // namespace rivulet
