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

/// Metadata that comes from elsewhere than a GGUF file: finish() gives the bytes of one without tensors, for
/// GgufFile::parse().
class GgufMetadata {
 public:
  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, uint32_t number);
  void add(std::string_view key, float number);
  void add(std::string_view key, bool flag);
  void add(std::string_view key, const std::vector<std::string>& texts);
  void add(std::string_view key, const std::vector<int32_t>& numbers);
  void add(std::string_view key, const std::vector<float>& numbers);
  void add(std::string_view key, const std::vector<bool>& flags);
  std::vector<uint8_t> finish() const;

 private:
  std::vector<uint8_t> values_;
  uint64_t count_ = 0;
};

/// A tensor that will be added.
struct GgufTensorPlan {
  std::string name;
  std::vector<int64_t> shape;  ///< outermost first
  WeightFormat format = WeightFormat::f32;
};

/// A whole file, tensor by tensor, without holding it.
class GgufWriter {
 public:
  /// The metadata of `source`, but for keys of split sets, and with general.file_type as `file_type`, where there is one. The
  /// tensors that will be added, in this order.
  static Result<GgufWriter> create(const std::string& path, const GgufFile& source, std::optional<uint32_t> file_type,
                                   const std::vector<GgufTensorPlan>& tensors);

  /// Everything added so far is on the disk.
  Status checkpoint();
  /// Goes on with a file where a writer of the same arguments had added `added` tensors; what lies behind is cut off.
  static Result<GgufWriter> resume(const std::string& path, const GgufFile& source, std::optional<uint32_t> file_type,
                                   const std::vector<GgufTensorPlan>& tensors, size_t added);

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
