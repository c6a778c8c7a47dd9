// Nameless files (O_TMPFILE, linkat), links and devices.
#include "base/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as many as Linux follows in a path

/// Where an output goes.
struct Place {
  std::string target;  ///< the path behind all symbolic links; empty: a device or FIFO, written in place
  mode_t mode = 0;     ///< of the file that is there
  bool is_there = false;
};

Error unwritable(const std::string& path, int number) {
  return bad_input(fmt::format("{}: cannot be written: {}", path, std::strerror(number)));
}

/// The path with the links at its end followed; what they lead to need not be there.
Result<std::string> follow_links(const std::string& path) {
  fs::path at = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(at, error); ++links) {
    if (links == kMaxLinks) return unwritable(path, ELOOP);
    const fs::path next = fs::read_symlink(at, error);
    if (error) return unwritable(path, error.value());
    at = at.parent_path() / next;  // an absolute `next` stands alone
  }
  return at.string();
}

std::string folder_of(const std::string& path) {
  const auto folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string partial_name(const std::string& target) {
  return fmt::format("{}.partial.{}", target, ::getpid());
}

Result<Place> find_place(const std::string& path) {
  if (path.empty()) return bad_input("found an empty file name, allowed is the name of a file");
  struct stat found {};
  Place place;
  place.is_there = ::stat(path.c_str(), &found) == 0;
  if (!place.is_there && errno != ENOENT) return unwritable(path, errno);
  if (place.is_there) {
    place.mode = found.st_mode & 07777;
    if (S_ISDIR(found.st_mode))
      return bad_input(fmt::format("{}: found a folder, allowed is a file's name", path));
    if (S_ISBLK(found.st_mode) || S_ISSOCK(found.st_mode))
      return bad_input(fmt::format("{}: found a {}, allowed are a file, a FIFO and a character device", path,
                                   S_ISBLK(found.st_mode) ? "block device (a disk)" : "socket"));
    if (::access(path.c_str(), W_OK) != 0) return unwritable(path, errno);
    if (!S_ISREG(found.st_mode)) return place;
  }
  TRY_ASSIGN(place.target, follow_links(path));
  if (fs::path(place.target).filename().empty())
    return bad_input(fmt::format("{}: found a folder's name, allowed is a file's name", path));
  if (const std::string folder = folder_of(place.target); ::access(folder.c_str(), W_OK | X_OK) != 0)
    return bad_input(
        fmt::format("{}: cannot write into its folder {}: {}", path, folder, std::strerror(errno)));
  // The name that it may need meanwhile must fit, too.
  struct stat ignored {};
  if (::lstat(partial_name(place.target).c_str(), &ignored) != 0 && errno != ENOENT) return unwritable(path, errno);
  return place;
}

}  // namespace

Status OutputFile::check(const std::string& path) {
  TRY(find_place(path));
  return {};
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  TRY_ASSIGN(const Place place, find_place(path));
  OutputFile file(path, nullptr);
  file.target_ = place.target;
  int fd = -1;
  if (place.target.empty()) {
    fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  } else {
    fd = ::open(folder_of(place.target).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
      file.partial_ = partial_name(place.target);
      fd = ::open(file.partial_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666);
    }
  }
  if (fd < 0) return file.write_error();
  if (!place.target.empty() && place.is_there) ::fchmod(fd, place.mode);
  file.stream_ = ::fdopen(fd, place.target.empty() ? "w" : "w+");
  if (!file.stream_) {
    ::close(fd);
    return file.write_error();
  }
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::exchange(other.target_, {})),
      partial_(std::exchange(other.partial_, {})),
      stream_(std::exchange(other.stream_, nullptr)) {}

OutputFile::~OutputFile() {
  if (stream_) std::fclose(stream_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

Error OutputFile::write_error() const { return io_error(fmt::format("{}: {}", path_, std::strerror(errno))); }

Status OutputFile::finish() {
  if (std::fflush(stream_) != 0) return write_error();
  if (target_.empty()) return {};
  // A network file system tells of writes that it lost when a descriptor is closed.
  if (::close(::dup(::fileno(stream_))) != 0) return write_error();
  if (partial_.empty()) {
    const std::string nameless = fmt::format("/proc/self/fd/{}", ::fileno(stream_));
    const auto link = [&](const std::string& name) {
      return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (link(target_)) return target_.clear(), Status();
    if (errno != EEXIST) return write_error();
    // linkat() replaces nothing: the whole file gets a name beside the old one, and takes its place at once.
    const std::string beside = partial_name(target_);
    ::unlink(beside.c_str());
    if (!link(beside)) return write_error();
    partial_ = beside;
  }
  if (std::rename(partial_.c_str(), target_.c_str()) != 0) return write_error();
  partial_.clear();
  target_.clear();
  return {};
}

}  // namespace quintet
