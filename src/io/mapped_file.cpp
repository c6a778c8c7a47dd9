// Maps files read-only and gives pages back.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/mapping_guard.h"

namespace quintet {

namespace {

/// Closes a descriptor at the end of a scope.
struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

struct OpenedFile {
  Descriptor descriptor;
  uint64_t bytes = 0;
};

Error system_error(const std::string& path, const char* action, int code) {
  auto message = fmt::format("{}: cannot {}: {}", path, action, std::strerror(code));
  if (code == ENOENT || code == ENOTDIR) return not_found(std::move(message));
  // No name of a file.
  return code == ENAMETOOLONG || code == ELOOP ? bad_input(std::move(message)) : io_error(std::move(message));
}

Status open_regular(const std::string& path, OpenedFile& file) {
  // O_NONBLOCK: a named pipe must be refused, not waited for.
  file.descriptor.number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor.number < 0) return system_error(path, "open", errno);
  struct stat status {};
  if (::fstat(file.descriptor.number, &status) != 0) return system_error(path, "read its size", errno);
  if (!S_ISREG(status.st_mode))
    return bad_input(fmt::format("{}: found a {}, allowed is a regular file", path,
                                 S_ISDIR(status.st_mode) ? "folder" : "device, pipe or socket"));
  file.bytes = static_cast<uint64_t>(status.st_size);
  return {};
}

/// The whole pages that a range touches.
std::span<uint8_t> pages_of(std::span<const uint8_t> range) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(range.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data()) + range.size();
  return {reinterpret_cast<uint8_t*>(begin), end - begin};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  OpenedFile file;
  TRY(open_regular(path, file));
  if (file.bytes == 0) return MappedFile(path, {});
  void* data = ::mmap(nullptr, file.bytes, PROT_READ, MAP_SHARED, file.descriptor.number, 0);
  if (data == MAP_FAILED) return system_error(path, "map into memory", errno);
  const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(data), file.bytes);
  enter_mapping(bytes, path);
  return MappedFile(path, bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  leave_mapping(bytes_);
  ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

void read_ahead(std::span<const uint8_t> mapped) {
  if (mapped.empty()) return;
  const auto pages = pages_of(mapped);
  (void)::madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void drop_pages(std::span<const uint8_t> mapped) {
  if (mapped.empty()) return;
  const auto pages = pages_of(mapped);
  (void)::madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit_bytes) {
  OpenedFile file;
  TRY(open_regular(path, file));
  if (file.bytes > limit_bytes)
    return bad_input(
        fmt::format("{}: found {} bytes, allowed are at most {}", path, file.bytes, limit_bytes));
  std::string text(file.bytes, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.descriptor.number, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "read", errno);
    if (got == 0) break;  // cut short by somebody else since its size was read
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace quintet
