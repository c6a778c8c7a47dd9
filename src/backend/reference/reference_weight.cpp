// Copies, checks and decodes the weights of the reference backend.
#include "backend/reference/reference_weight.h"

#include <cmath>

#include "base/check.h"

namespace quintet::reference {

void ReferenceWeight::decode_row(int64_t row, float* out) const {
  for (const ReferencePart& part : parts) {
    if (row < part.rows) {
      const HostWeight weight{
          .format = part.format,
          .n = part.rows,
          .k = k,
          .bytes = part.bytes,
          .outliers = {.row_begin = part.outlier_rows, .columns = part.outlier_columns, .values = part.outlier_values},
          .row_scales = part.row_scales,
          .in_perm = part.in_perm};
      quintet::decode_row(weight, row, out);
      return;
    }
    row -= part.rows;
  }
  QUINTET_CHECK(false, "row {} past the end of a weight", row);
}

const ReferenceWeight& unwrap(const Weight& weight) {
  QUINTET_CHECK(!weight.empty(), "an empty weight was used");
  const auto* packed = dynamic_cast<const ReferenceWeight*>(weight.packed.get());
  QUINTET_CHECK(packed, "a weight of another backend was used");
  return *packed;
}

namespace {

Status check_finite(const ReferenceWeight& weight, std::span<const HostWeight> parts) {
  std::vector<float> row(static_cast<size_t>(weight.k));
  int64_t first = 0;
  for (const HostWeight& part : parts) {
    for (int64_t r = 0; r < part.n; ++r) {
      weight.decode_row(first + r, row.data());
      for (int64_t c = 0; c < weight.k; ++c) {
        if (!std::isfinite(row[static_cast<size_t>(c)])) {
          return bad_input(
              fmt::format("tensor '{}' ({}): row {}, column {} is {}; only finite values are allowed",
                          part.name, format_info(part.format).name, r, c, row[static_cast<size_t>(c)]));
        }
      }
    }
    first += part.n;
  }
  return {};
}

}  // namespace

Result<Weight> prepare_weight(WeightRole role, std::span<const HostWeight> parts) {
  QUINTET_CHECK(!parts.empty(), "a weight needs at least one part");
  Weight weight;
  weight.role = role;
  weight.k = parts[0].k;
  auto packed = std::make_unique<ReferenceWeight>();
  packed->k = weight.k;
  for (const HostWeight& part : parts) {
    QUINTET_CHECK(part.k == weight.k, "parts of a weight differ in k: {} and {}", part.k, weight.k);
    QUINTET_CHECK(part.k % format_info(part.format).block_weights == 0,
                  "tensor '{}': k {} is not a whole number of blocks", part.name, part.k);
    QUINTET_CHECK(static_cast<int64_t>(part.bytes.size()) == part.n * part.row_bytes(),
                  "tensor '{}': {} bytes for {} x {}", part.name, part.bytes.size(), part.n, part.k);
    const auto copy = [](std::span<const uint8_t> bytes) { return std::vector<uint8_t>(bytes.begin(), bytes.end()); };
    packed->parts.push_back({part.format, part.n, copy(part.bytes), copy(part.outliers.row_begin),
                             copy(part.outliers.columns), copy(part.outliers.values),
                             copy(part.row_scales), {part.in_perm.begin(), part.in_perm.end()}});
    weight.part_rows.push_back(part.n);
    weight.n += part.n;
    weight.bytes += part.stored_bytes();
  }
  TRY(check_finite(*packed, parts));
  weight.packed = std::move(packed);
  return weight;
}

}  // namespace quintet::reference
