// What this machine's cores and memory can do at all: every speed is stated beside it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quintet {

struct CpuCeilings {
  double read_bytes_per_s = 0;  ///< all threads, over buffers that no cache holds
  /// Multiply-adds a second of all threads by instruction kind, operands in registers; fastest kinds of this
  /// machine only.
  std::vector<std::pair<std::string, double>> dot_ops_per_s;
};

/// Takes about half a second. 0 threads: the cores this process may use.
CpuCeilings measure_cpu_ceilings(int threads);

}  // namespace quintet
