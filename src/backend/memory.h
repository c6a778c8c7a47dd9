// Memory that a backend hands out at start. Steps allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace quintet {

enum class BufferUse : uint8_t {
  workspace,  ///< activations of a step
  kv,         ///< pages of the cache
  staging,    ///< host memory from which a step's inputs are copied (pinned where that matters)
};

/// Owns one allocation of a backend, aligned to at least 256 bytes. Freed by the backend that made it, which must
/// outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() { if (data_) release_(data_); }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T> T* as() const { return static_cast<T*>(data_); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::function<void(void*)> release_;
};

}  // namespace quintet
