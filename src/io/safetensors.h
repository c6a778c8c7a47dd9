// safetensors: a JSON header that says where each dense tensor lies, then the bytes.
// Specification: https://huggingface.co/docs/safetensors/index#format
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"

namespace quintet {

struct SafeTensor {
  std::string name;
  std::string dtype;               ///< as the file writes it: "F32", "F16", "BF16", "I32", "F8_E4M3", ...
  std::vector<int64_t> shape;      ///< outermost first; empty: a scalar
  std::span<const uint8_t> bytes;  ///< exactly the tensor's
};

/// Bytes of one element of a safetensors dtype, 0 where unknown.
size_t safetensors_dtype_bytes(std::string_view dtype);

/// Immutable once open; tensors borrow from the mapping and live as long as this object (moves included).
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  /// One whole file in memory that outlives the result (tests, fuzzing). `origin` names it in errors.
  static Result<SafetensorsFile> parse(std::span<const uint8_t> bytes, std::string origin);

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }  ///< in order of their bytes
  const SafeTensor* find(std::string_view name) const;

 private:
  SafetensorsFile() = default;

  std::string path_;
  std::vector<MappedFile> file_;  ///< one, or none where parsed from memory
  uint64_t file_bytes_ = 0;
  std::vector<SafeTensor> tensors_;
  std::vector<uint32_t> order_;  ///< indices of tensors_, sorted by name
};

}  // namespace quintet
