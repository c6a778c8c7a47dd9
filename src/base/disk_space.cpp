// Asks the file system.
#include "base/disk_space.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/units.h"

namespace quintet {

namespace fs = std::filesystem;

Status check_disk_space(const std::string& folder, uint64_t bytes, std::string_view sum) {
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (error || space.available >= bytes) return {};
  return no_room(fmt::format("{}: found {} free on its disk, needed are {}: {}", folder, format_bytes(space.available),
                             format_bytes(bytes), sum));
}

uint64_t disk_bytes_of(const std::string& folder) {
  constexpr uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's are
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    struct stat found {};
    if (::lstat(entry->path().c_str(), &found) == 0 && S_ISREG(found.st_mode)) bytes += static_cast<uint64_t>(found.st_blocks) * kBlockBytes;
  }
  return bytes;
}

}  // namespace quintet
