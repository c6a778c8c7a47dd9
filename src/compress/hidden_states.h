// The rows between two layers of a model, of all calibration tokens: in files, so that memory does not bound them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/result.h"

namespace quintet {

/// Rows [tokens, hidden] f32 in two files of a folder: what enters a layer and what leaves it. They are mapped, and stay when the
/// object goes: a later one goes on with them. Or in the memory of a backend, where they change in place, and are written to the
/// files now and then.
class HiddenStates {
 public:
  struct Shape {
    int64_t tokens = 0, hidden = 0;
    int entering = 0;  ///< which of the two files holds what enters (of an earlier object: entering())
    int files = 2;     ///< 1: rows that change in place
  };
  /// Takes the room on the disk at once: no_room where there is none.
  static Result<HiddenStates> open(const std::string& folder, const Shape& shape);
  /// In memory of `backend`, which must outlive them; `saved`: what the files hold. no_room where the backend has too little.
  static Result<HiddenStates> keep(const std::string& folder, const Shape& shape, Backend& backend, bool saved);

  HiddenStates(HiddenStates&& other) noexcept = default;
  HiddenStates& operator=(HiddenStates&&) = delete;
  ~HiddenStates();

  /// In memory of the host, or of the backend.
  float* row_in(int64_t token) { return rows(shape_.entering) + token * shape_.hidden; }
  float* row_out(int64_t token) { return rows(1 - shape_.entering) + token * shape_.hidden; }
  int64_t tokens() const { return shape_.tokens; }
  int64_t hidden() const { return shape_.hidden; }
  int entering() const { return shape_.entering; }
  bool on_backend() const { return backend_ != nullptr; }

  /// What leaves becomes what enters; in files it is on the disk then.
  Status swap();
  /// Whether what enters is on the disk, or is to be put there now: not in files alone, that takes seconds a gigabyte.
  bool is_saved_or_due() const;
  /// Puts it there, where it is not, under the other of the two names.
  Status save();

 private:
  struct Unmap {
    size_t bytes;
    void operator()(float* map) const;
  };
  using Map = std::unique_ptr<float, Unmap>;

  HiddenStates(std::string folder, const Shape& shape) : folder_(std::move(folder)), shape_(shape) {}
  size_t bytes() const { return static_cast<size_t>(shape_.tokens * shape_.hidden) * sizeof(float); }
  float* rows(int file) { return backend_ ? buffer_.as<float>() : maps_[file].get(); }
  Status map(int file);
  Status sync(int file);

  std::string folder_;
  Shape shape_;
  Map maps_[2];
  Backend* backend_ = nullptr;
  Buffer buffer_;
  bool saved_ = true;  ///< what enters
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
  std::chrono::duration<double> saving_{};  ///< how long it took the last time
};

}  // namespace quintet
