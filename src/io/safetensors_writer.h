// Writes a safetensors file tensor by tensor, without holding it.
// Specification: https://huggingface.co/docs/safetensors/index#format
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

/// The header stands at the beginning but is known at the end: room is kept for it, and filled up with
/// spaces, as the specification allows. A file that was not finished has no valid header.
class SafetensorsWriter {
 public:
  /// `tensors`: at most so many will be added, with names of at most `name_bytes` bytes.
  static Result<SafetensorsWriter> create(const std::string& path, size_t tensors, size_t name_bytes);

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  /// How far a file has come: what was added until then is on the disk.
  struct Progress {
    uint64_t data_bytes = 0;
    std::string header;  ///< of the tensors added, without its end
  };
  Result<Progress> checkpoint();
  /// Goes on with a file where a writer of the same arguments stood at `progress`; what lies behind is cut off.
  static Result<SafetensorsWriter> resume(const std::string& path, size_t tensors, size_t name_bytes,
                                          const Progress& progress);

  /// `dtype` as the file names it ("U8", "F16"); `bytes` are what dtype and shape ask for.
  Status add(std::string_view name, std::string_view dtype, const std::vector<int64_t>& shape,
             std::span<const uint8_t> bytes);
  /// Writes the header and makes sure that everything is on the disk.
  Status finish();

 private:
  SafetensorsWriter(std::string path, std::FILE* file, size_t header_bytes)
      : path_(std::move(path)), file_(file), header_bytes_(header_bytes) {}
  Error failure() const;

  std::string path_;
  std::FILE* file_;
  size_t header_bytes_;
  uint64_t data_bytes_ = 0;
  std::string header_ = R"({"__metadata__":{"format":"pt"})";  // Transformers takes no file without it
};

}  // namespace quintet
