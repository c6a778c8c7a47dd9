// Maps the two files.
#include "compress/hidden_states.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace quintet {
namespace {

constexpr const char* kNames[2] = {"hidden-0.f32", "hidden-1.f32"};

/// A mapping of the file's first `bytes`, with room on the disk: a write into a hole of a full disk would be SIGBUS.
Result<float*> map_file(const std::string& path, size_t bytes) {
  const auto failure = [&](int error) {
    return Error{error == ENOSPC ? ErrorKind::no_room : ErrorKind::io, fmt::format("{}: {}", path, std::strerror(error))};
  };
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return failure(errno);
  const int refused = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* data = refused == 0 ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = refused != 0 ? refused : errno;
  ::close(file);
  if (data == MAP_FAILED) return failure(error);
  return static_cast<float*>(data);
}

}  // namespace

Result<HiddenStates> HiddenStates::open(const std::string& folder, const Shape& shape) {
  HiddenStates states(folder, shape);
  for (int i = 0; i < shape.files; ++i) {
    TRY_ASSIGN(states.maps_[i], map_file(fmt::format("{}/{}", folder, kNames[i]), states.bytes()));
  }
  return states;
}

HiddenStates::HiddenStates(HiddenStates&& other) noexcept
    : folder_(std::move(other.folder_)), shape_(other.shape_) {
  for (int i = 0; i < 2; ++i) maps_[i] = std::exchange(other.maps_[i], nullptr);
}

HiddenStates::~HiddenStates() {
  for (float* map : maps_)
    if (map) ::munmap(map, bytes());
}

Status HiddenStates::swap() {
  float* left = maps_[1 - shape_.entering];
  if (::msync(left, bytes(), MS_SYNC) != 0)
    return io_error(fmt::format("{}/{}: {}", folder_, kNames[1 - shape_.entering], std::strerror(errno)));
  shape_.entering = 1 - shape_.entering;
  return {};
}


}  // namespace quintet
