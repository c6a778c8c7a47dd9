// GGUF v2 and v3: typed metadata and the list of tensors, over a mapped file or a split set of them.
// Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "quant/format.h"

namespace quintet {

/// Types of metadata values, numbered as in the file.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// "u32", "string", ...
std::string_view gguf_type_name(GgufType type);

/// One metadata value as it lies in the file; already checked to lie inside it.
struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  ///< arrays: what they hold
  uint64_t count = 1;               ///< arrays: how many
  std::span<const uint8_t> bytes;   ///< the value (of strings: without the length; of arrays: the elements)
};

struct GgufTensor {
  std::string_view name;
  WeightFormat format = WeightFormat::f32;
  std::vector<int64_t>
      shape;  ///< outermost first, so the last one is the length of a row (GGUF lists it first)
  std::span<const uint8_t> bytes;  ///< exactly the tensor's, aligned as the file says
  int32_t part = 0;                ///< index into GgufFile::paths()
};

/// Immutable once open; safe for many threads. Everything it hands out borrows from the mapping and lives as
/// long as this object (moves included). Getters: `not_found` where the key is absent, `bad_input` where its
/// type is wrong; both messages name file, key, what was found and what is allowed.
class GgufFile {
 public:
  /// Opens one file, or all parts of a split set through any one of them (`name-00001-of-00003.gguf`).
  static Result<GgufFile> open(const std::string& path);
  /// One whole file in memory that outlives the result (tests, fuzzing). `origin` names it in errors.
  static Result<GgufFile> parse(std::span<const uint8_t> bytes, std::string origin);

  const std::string& path() const { return paths_.front(); }
  const std::vector<std::string>& paths() const { return paths_; }
  uint64_t file_bytes() const { return file_bytes_; }  ///< of all parts
  uint32_t version() const { return version_; }

  const std::vector<GgufValue>& values() const { return values_; }     ///< in file order (of the first part)
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  ///< in file order

  const GgufValue* find(std::string_view key) const;  ///< null where absent
  const GgufTensor* find_tensor(std::string_view name) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool is_array(std::string_view key) const;

  Result<std::string_view> get_string(std::string_view key) const;
  Result<uint64_t> get_u64(std::string_view key) const;  ///< any integer type, not negative
  Result<int64_t> get_i64(std::string_view key) const;   ///< any integer type that fits
  Result<float> get_f32(std::string_view key) const;     ///< f32 or f64
  Result<bool> get_bool(std::string_view key) const;     ///< a boolean byte of 0 or 1

  /// Absent: `fallback`. Present with a wrong type: an error all the same.
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;
  Result<uint64_t> get_u64_or(std::string_view key, uint64_t fallback) const;
  Result<float> get_f32_or(std::string_view key, float fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;

  /// Arrays. The integer and float getters take any element type of their kind.
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<int64_t>> get_i64s(std::string_view key) const;
  Result<std::vector<float>> get_f32s(std::string_view key) const;
  Result<std::vector<bool>> get_bools(std::string_view key) const;
  Result<std::span<const uint8_t>> get_bytes(std::string_view key) const;  ///< u8 or i8 elements, as they are

  /// The value for people: strings quoted and cut, arrays as "[1, 2, 3, ... 49152 in all]".
  std::string describe(const GgufValue& value, size_t limit_bytes = 80) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  Error wrong_type(const GgufValue& value, std::string_view allowed) const;
  Error absent(std::string_view key, std::string_view allowed) const;

  std::vector<std::string> paths_;
  std::vector<MappedFile> files_;  ///< empty where parsed from memory
  uint64_t file_bytes_ = 0;
  uint32_t version_ = 0;
  std::vector<GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> value_order_;   ///< indices of values_, sorted by key
  std::vector<uint32_t> tensor_order_;  ///< indices of tensors_, sorted by name
};

}  // namespace quintet
