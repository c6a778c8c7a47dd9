// Writes GGUF files with the metadata of another one.
// Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/gguf.h"

namespace quintet {

/// A GGUF v3 file with all metadata of `source` and no tensors. Keys that speak of a split set are left out.
Status write_gguf_metadata(const std::string& path, const GgufFile& source);

/// A tensor that will be added.
struct GgufTensorPlan {
  std::string name;
  std::vector<int64_t> shape;  ///< outermost first
  WeightFormat format = WeightFormat::f32;
};

/// A whole file, tensor by tensor, without holding it.
class GgufWriter {
 public:
  /// The metadata of `source`, but for keys of split sets, and with general.file_type as `file_type`. The
  /// tensors that will be added, in this order.
  static Result<GgufWriter> create(const std::string& path, const GgufFile& source, uint32_t file_type,
                                   const std::vector<GgufTensorPlan>& tensors);

  GgufWriter(GgufWriter&& other) noexcept;
  GgufWriter& operator=(GgufWriter&&) = delete;
  ~GgufWriter();

  /// The next tensor's bytes, as many as its plan says.
  Status add(std::span<const uint8_t> bytes);
  /// All were added; makes sure that everything is on the disk.
  Status finish();

 private:
  GgufWriter(std::string path, std::FILE* file, std::vector<uint64_t> left)
      : path_(std::move(path)), file_(file), left_bytes_(std::move(left)) {}
  Error failure() const;
  Status write(std::span<const uint8_t> bytes);

  std::string path_;
  std::FILE* file_;
  std::vector<uint64_t> left_bytes_;  ///< of the tensors that are still to come, the next one last
};

}  // namespace quintet
