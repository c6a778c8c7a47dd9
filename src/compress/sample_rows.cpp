// One row after the other: what is not dense yet is made row by row, never whole.
#include "compress/sample_rows.h"

#include "quant/quantize.h"

namespace quintet {

Result<std::vector<float>> sample_rows(const HostWeight& weight, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * weight.k));
  for (int64_t i = 0; i < rows; ++i) {
    QuantizedMatrix made;
    TRY_ASSIGN(const HostWeight row, made_of(weight.slice_rows(i * weight.n / rows, 1), made));
    decode_row(row, 0, values.data() + i * weight.k);
  }
  return values;
}

}  // namespace quintet
