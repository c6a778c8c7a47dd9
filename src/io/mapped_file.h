// A file mapped read-only into memory: pages come in when they are touched and can be let go again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace quintet {

/// Move-only owner of one mapping; the bytes keep their address when it is moved. Immutable, so safe for many
/// threads. The file must not be cut short by others while it is open: the kernel answers a touch of lost
/// pages with SIGBUS.
class MappedFile {
 public:
  /// Errors: not_found, bad_input (not a regular file), io. An empty file gives empty bytes.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const uint8_t> bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const uint8_t> bytes_;
};

/// Asks the kernel to read these mapped bytes ahead. A hint: failures are ignored. Any sub-range of a
/// MappedFile.
void read_ahead(std::span<const uint8_t> mapped);

/// Takes the pages that these mapped bytes touch out of the process's resident memory; they come back from
/// the page cache when touched again. A loader calls it after each tensor that was prepared, so that its peak
/// memory stays near the prepared weights alone. Never of other memory than a MappedFile's: what was written
/// there would be lost.
void drop_pages(std::span<const uint8_t> mapped);

/// Reads a small text file whole. `limit_bytes` bounds it: larger files are bad_input.
Result<std::string> read_text_file(const std::string& path, uint64_t limit_bytes);

}  // namespace quintet
