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
constexpr double kBytesPerSecond = 1e9;  // of a disk, until it is known better
constexpr double kSavingShare = 20;      // of the time at most one such part goes into saving

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

Status HiddenStates::map(int file) {
  if (maps_[file]) return {};
  TRY_ASSIGN(float* const data, map_file(fmt::format("{}/{}", folder_, kNames[file]), bytes()));
  maps_[file] = Map(data, {bytes()});
  return {};
}

void HiddenStates::Unmap::operator()(float* map) const { ::munmap(map, bytes); }

Result<HiddenStates> HiddenStates::open(const std::string& folder, const Shape& shape) {
  HiddenStates states(folder, shape);
  for (int i = 0; i < shape.files; ++i) TRY(states.map(i));
  return states;
}

Result<HiddenStates> HiddenStates::keep(const std::string& folder, const Shape& shape, Backend& backend, bool saved) {
  HiddenStates states(folder, shape);
  TRY_ASSIGN(states.buffer_, backend.allocate(states.bytes(), BufferUse::workspace));
  states.backend_ = &backend;
  states.saving_ = std::chrono::duration<double>(static_cast<double>(states.bytes()) / kBytesPerSecond);
  if (!saved) return states;
  TRY(states.map(shape.entering));
  TRY(backend.write({reinterpret_cast<const uint8_t*>(states.maps_[shape.entering].get()), states.bytes()}, states.buffer_.data()));
  states.maps_[shape.entering].reset();
  return states;
}

HiddenStates::~HiddenStates() = default;

Status HiddenStates::sync(int file) {
  if (::msync(maps_[file].get(), bytes(), MS_SYNC) == 0) return {};
  return io_error(fmt::format("{}/{}: {}", folder_, kNames[file], std::strerror(errno)));
}

Status HiddenStates::swap() {
  saved_ = !backend_;
  if (backend_) return {};
  TRY(sync(1 - shape_.entering));
  shape_.entering = 1 - shape_.entering;
  return {};
}

bool HiddenStates::is_saved_or_due() const {
  return saved_ || std::chrono::steady_clock::now() - saved_at_ >= kSavingShare * saving_;
}

Status HiddenStates::save() {
  if (saved_) return {};
  const auto begin = std::chrono::steady_clock::now();
  const int file = 1 - shape_.entering;
  TRY(map(file));
  TRY(backend_->read(buffer_.data(), {reinterpret_cast<uint8_t*>(maps_[file].get()), bytes()}));
  TRY(sync(file));
  maps_[file].reset();
  shape_.entering = file;
  saved_ = true;
  saved_at_ = std::chrono::steady_clock::now();
  saving_ = saved_at_ - begin;
  return {};
}

}  // namespace quintet
