// A weight tensor as it lies in a mapped model file: borrowed bytes and what they mean.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "quant/blocks.h"
#include "quant/format.h"

namespace quintet {

/// Weights of a matrix that its format cannot hold well, kept apart as what is to be added to the decoded ones:
/// compressed sparse rows, little-endian, borrowed like the matrix itself, at any address.
struct Outliers {
  std::span<const uint8_t> row_begin;  ///< [n + 1] u32: row r has entries [row_begin[r], row_begin[r + 1])
  std::span<const uint8_t> columns;    ///< [entries] u16, ascending within a row
  std::span<const uint8_t> values;     ///< [entries] f16

  bool empty() const { return row_begin.empty(); }
  uint64_t bytes() const { return row_begin.size() + columns.size() + values.size(); }
  uint32_t first_of(int64_t row) const { return load_u32(row_begin.data() + 4 * row); }
  uint16_t column(uint32_t entry) const { return load_u16(columns.data() + 2 * size_t{entry}); }
  float value(uint32_t entry) const { return load_f16(values.data() + 2 * size_t{entry}); }
};

class WeightMaker;

/// A matrix [n, k] (n outputs, k inputs), row after row, each row a whole number of blocks. A vector is [1, k].
/// The bytes belong to the mapped file and stay valid while it is open. They may start at any address: a safetensors file
/// aligns nothing, so elements are read with memcpy, never through a cast pointer.
struct HostWeight {
  std::string_view name;
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0;
  int64_t k = 0;
  std::span<const uint8_t> bytes;
  Outliers outliers;  ///< usually none
  std::span<const uint8_t> row_scales;  ///< [n] f32, little-endian; of formats that have them (FormatInfo::decode_scaled)

  /// [k]: stored column i is of input in_perm[i] (GPTQ's act-order); empty: stored in order. Never with outliers.
  std::span<const int32_t> in_perm;
  /// Where set, the bytes are made when they are needed (made_of()): `bytes` is empty. Belongs to the file.
  const WeightMaker* maker = nullptr;
  int64_t first_row = 0;  ///< of the maker's rows

  int64_t row_bytes() const { return static_cast<int64_t>(format_bytes_of(format, static_cast<uint64_t>(k))); }

  /// Rows [first, first + count) of this matrix, sharing its bytes.
  HostWeight slice_rows(int64_t first, int64_t count) const {
    HostWeight part = *this;
    part.n = count;
    part.first_row = first_row + first;
    if (maker) return part;
    part.bytes = bytes.subspan(static_cast<size_t>(first * row_bytes()), static_cast<size_t>(count * row_bytes()));
    if (!outliers.empty())
      part.outliers.row_begin = outliers.row_begin.subspan(static_cast<size_t>(4 * first), static_cast<size_t>(4 * (count + 1)));
    if (!row_scales.empty()) part.row_scales = row_scales.subspan(static_cast<size_t>(4 * first), static_cast<size_t>(4 * count));
    return part;
  }

  /// Of a row; 1 where the format has no scales of rows.
  float row_scale(int64_t row) const { return row_scales.empty() ? 1.0f : load_f32(row_scales.data() + 4 * row); }

  /// Bytes in the file, outliers and scales of rows included.
  uint64_t stored_bytes() const;
};

struct QuantizedMatrix;

/// Makes rows of a matrix from a file that lays it out in another way (io/foreign_weights.h). Immutable.
class WeightMaker {
 public:
  virtual ~WeightMaker() = default;
  /// Rows [first, first + count) in the format that the HostWeight says. bad_input names the tensor.
  virtual Result<QuantizedMatrix> make(int64_t first, int64_t count) const = 0;
  /// Bytes of a row in the file, on average.
  virtual double row_bytes() const = 0;
};

/// A weight with bytes: itself, or what its maker made, which `made` then holds.
Result<HostWeight> made_of(const HostWeight& weight, QuantizedMatrix& made);

/// bad_input, named by tensor, where the outliers' rows, columns or values, or the scales of rows, are not what they must
/// be. Whoever takes a HostWeight from a file calls it once before anything reads them.
Status check_side_data(const HostWeight& weight);

/// What a row is: decoded by its format, outliers added. out [k]. The oracle of every backend.
void decode_row(const HostWeight& weight, int64_t row, float* out);

}  // namespace quintet
