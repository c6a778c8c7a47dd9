// Reads what the kernel says about memory.
#include "base/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

namespace quintet {
namespace {

std::string read_all(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<uint64_t> number_at(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

/// The number behind `name` at the beginning of a line.
std::optional<uint64_t> field(std::string_view text, std::string_view name) {
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size());
    if (text.substr(line, name.size()) == name) return number_at(text.substr(line + name.size(), end - line - name.size()));
    line = end + 1;
  }
  return std::nullopt;
}

}  // namespace

HostMemory host_memory_from(const HostMemoryFiles& files) {
  HostMemory memory{.total_bytes = field(files.meminfo, "MemTotal:").value_or(0) << 10,
                    .available_bytes = field(files.meminfo, "MemAvailable:").value_or(0) << 10};
  const auto limit = number_at(files.cgroup_max), current = number_at(files.cgroup_current);
  if (!limit || !current) return memory;
  const uint64_t cache = std::min(field(files.cgroup_stat, "file ").value_or(0), *current);
  const uint64_t used = *current - cache;
  const uint64_t left = *limit > used ? *limit - used : 0;
  // Zero means "not known": a container that is full says one byte.
  memory.total_bytes = std::min(memory.total_bytes, *limit);
  memory.available_bytes = std::max<uint64_t>(1, std::min(memory.available_bytes, left));
  return memory;
}

HostMemory host_memory() {
  return host_memory_from({.meminfo = read_all("/proc/meminfo"),
                           .cgroup_max = read_all("/sys/fs/cgroup/memory.max"),
                           .cgroup_current = read_all("/sys/fs/cgroup/memory.current"),
                           .cgroup_stat = read_all("/sys/fs/cgroup/memory.stat")});
}

}  // namespace quintet
