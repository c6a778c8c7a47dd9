// Writes a float32 matrix as a NumPy .npy file, row by row, without holding it.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>

#include "base/output_file.h"
#include "base/result.h"

namespace quintet {

/// An OutputFile: in place once finish() is done; one that never finished leaves nothing behind.
class NpyFile {
 public:
  static Result<NpyFile> create(const std::string& path, int64_t rows, int64_t cols);

  /// Appends `count` values, rows one after the other.
  Status write(const float* values, int64_t count);
  /// Every row must have been written.
  Status finish();

 private:
  NpyFile(OutputFile file, int64_t values_left) : file_(std::move(file)), values_left_(values_left) {}

  OutputFile file_;
  int64_t values_left_;
};

}  // namespace quintet
