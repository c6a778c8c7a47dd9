// Writes a float32 matrix as a NumPy .npy file, row by row, without holding it.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/result.h"

namespace quintet {

/// Written beside its final name and renamed by finish(); one that never finished leaves nothing behind.
class NpyFile {
 public:
  /// Fails early where the folder cannot be written.
  static Status check_writable(const std::string& path);
  static Result<NpyFile> create(const std::string& path, int64_t rows, int64_t cols);

  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&&) = delete;
  ~NpyFile();

  /// Appends `count` values, rows one after the other.
  Status write(const float* values, int64_t count);
  /// Every row must have been written.
  Status finish();

 private:
  NpyFile(std::string path, std::string partial, std::FILE* file, int64_t values_left)
      : path_(std::move(path)), partial_(std::move(partial)), file_(file), values_left_(values_left) {}

  std::string path_, partial_;
  std::FILE* file_;
  int64_t values_left_;
};

}  // namespace quintet
