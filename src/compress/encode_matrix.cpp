// Rows on all threads, in chunks that do not depend on their number.
#include "compress/encode_matrix.h"

#include <algorithm>

#include "base/parallel.h"
#include "quant/encode.h"

namespace quintet {

QuantizedMatrix encode_matrix(const MatrixToQuantize& matrix, WeightFormat format) {
  constexpr int64_t kRowsAtOnce = 16;  // whatever rows are long: whole batches of the encoder
  const auto row_bytes = static_cast<size_t>(format_bytes_of(format, static_cast<uint64_t>(matrix.k)));
  QuantizedMatrix made{.format = format, .n = matrix.n, .k = matrix.k};
  made.blocks.resize(static_cast<size_t>(matrix.n) * row_bytes);
  parallel_for((matrix.n + kRowsAtOnce - 1) / kRowsAtOnce, matrix.threads, [&](int64_t chunk) {
    const int64_t first = chunk * kRowsAtOnce, rows = std::min(kRowsAtOnce, matrix.n - first);
    encode_blocks(format, {matrix.weights + first * matrix.k, static_cast<size_t>(rows * matrix.k)}, matrix.moments,
                  made.blocks.data() + static_cast<size_t>(first) * row_bytes);
  });
  return made;
}

}  // namespace quintet
