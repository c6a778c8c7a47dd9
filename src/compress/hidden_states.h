// The rows between two layers of a model, of all calibration tokens: in files, so that memory does not bound them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

/// Two files [tokens, hidden] f32 in a folder: what enters a layer and what leaves it. They are mapped, and stay when the
/// object goes: a later one goes on with them.
class HiddenStates {
 public:
  struct Shape {
    int64_t tokens = 0, hidden = 0;
    int entering = 0;  ///< which of the two files holds what enters (of an earlier object: entering())
    int files = 2;     ///< 1: rows that change in place
  };
  /// Takes the room on the disk at once: no_room where there is none.
  static Result<HiddenStates> open(const std::string& folder, const Shape& shape);

  HiddenStates(HiddenStates&& other) noexcept;
  HiddenStates& operator=(HiddenStates&&) = delete;
  ~HiddenStates();

  float* row_in(int64_t token) { return maps_[shape_.entering] + token * shape_.hidden; }
  float* row_out(int64_t token) { return maps_[1 - shape_.entering] + token * shape_.hidden; }
  int64_t hidden() const { return shape_.hidden; }
  int entering() const { return shape_.entering; }

  /// What leaves becomes what enters, and is on the disk.
  Status swap();

 private:
  HiddenStates(std::string folder, const Shape& shape) : folder_(std::move(folder)), shape_(shape) {}
  size_t bytes() const { return static_cast<size_t>(shape_.tokens * shape_.hidden) * sizeof(float); }

  std::string folder_;
  Shape shape_;
  float* maps_[2] = {};
};

}  // namespace quintet
