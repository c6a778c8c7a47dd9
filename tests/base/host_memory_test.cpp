// What the kernel's files say, with and without a container's limit.
#include "base/host_memory.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

constexpr const char* kMeminfo = "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    800 kB\n";

TEST(HostMemory, CachesCountAsAvailable) {
  const HostMemory memory = host_memory_from({.meminfo = kMeminfo});
  EXPECT_EQ(memory.total_bytes, 1000u << 10);
  EXPECT_EQ(memory.available_bytes, 800u << 10);
}

TEST(HostMemory, AContainersLimitBounds) {
  HostMemoryFiles files{.meminfo = kMeminfo, .cgroup_max = "512000\n", .cgroup_current = "300000\n",
                        .cgroup_stat = "anon 100000\nfile 200000\nfile_mapped 7\n"};
  EXPECT_EQ(host_memory_from(files).total_bytes, 512000u);
  EXPECT_EQ(host_memory_from(files).available_bytes, 412000u);
  files.cgroup_current = "900000";
  files.cgroup_stat = "";
  EXPECT_EQ(host_memory_from(files).available_bytes, 1u);
  files.cgroup_max = "max\n";
  EXPECT_EQ(host_memory_from(files).available_bytes, 800u << 10);
}

TEST(HostMemory, NothingKnownIsZero) {
  EXPECT_EQ(host_memory_from({}).total_bytes, 0u);
  EXPECT_EQ(host_memory_from({.meminfo = "MemTotal: much\n"}).total_bytes, 0u);
}

TEST(HostMemory, ThisMachineHasSome) {
  EXPECT_GT(host_memory().total_bytes, 1u << 20);
  EXPECT_LE(host_memory().available_bytes, host_memory().total_bytes);
}

}  // namespace
}  // namespace quintet
