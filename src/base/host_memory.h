// How much memory this machine has and can still give, as far as this process may use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quintet {

/// 0 where not known.
struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  ///< free, or held by caches that the kernel gives up at once
};

/// From /proc/meminfo, bounded by the limit of a container (control groups version 2).
HostMemory host_memory();

/// The texts of the files that host_memory() reads; an absent one is empty.
struct HostMemoryFiles {
  std::string meminfo;         ///< /proc/meminfo
  std::string cgroup_max;      ///< memory.max: bytes or "max"
  std::string cgroup_current;  ///< memory.current: bytes, file caches included
  std::string cgroup_stat;     ///< memory.stat: "file 123" is that cache
};
HostMemory host_memory_from(const HostMemoryFiles& files);

}  // namespace quintet
