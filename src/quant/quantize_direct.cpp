// Rounding into NF4, E4M3 and bytes.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "quant/blocks.h"
#include "quant/quantize.h"
#include "tensor/float8.h"

namespace quintet {
namespace {

constexpr float kLargestScaleCode = 255;

float largest_of(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

uint8_t nearest_nf4(float value) {
  const auto* const above = std::lower_bound(std::begin(kNf4Values), std::end(kNf4Values), value);
  const auto index = static_cast<size_t>(above - std::begin(kNf4Values));
  if (index == 0) return 0;
  if (index == std::size(kNf4Values)) return static_cast<uint8_t>(index - 1);
  return static_cast<uint8_t>(kNf4Values[index] - value < value - kNf4Values[index - 1] ? index : index - 1);
}

void encode_nf4(const float* values, float scale, uint8_t* q) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < kNf4BlockWeights / 2; ++i)
    q[i] = static_cast<uint8_t>(nearest_nf4(values[2 * i] * inverse) << 4 | nearest_nf4(values[2 * i + 1] * inverse));
}

void put_half(float value, uint8_t* out) {
  const uint16_t bits = f32_to_f16(value);
  out[0] = static_cast<uint8_t>(bits);
  out[1] = static_cast<uint8_t>(bits >> 8);
}

/// One row; gives its scale, 1 where the format has none.
float encode_row(WeightFormat format, const float* values, int64_t k, uint8_t* out) {
  const float largest = largest_of(values, k);
  switch (format) {
    case WeightFormat::nf4:
      for (int64_t i = 0; i < k; i += kNf4BlockWeights, out += sizeof(BlockNf4)) {
        put_half(largest_of(values + i, kNf4BlockWeights), out);
        encode_nf4(values + i, load_f16(out), out + 2);
      }
      return 1;
    case WeightFormat::nf4_dq: {
      const float scale = largest / kLargestScaleCode;
      for (int64_t i = 0; i < k; i += kNf4BlockWeights, out += sizeof(BlockNf4Dq)) {
        const float block = largest_of(values + i, kNf4BlockWeights);
        out[0] = scale > 0 ? static_cast<uint8_t>(std::clamp(std::nearbyint(block / scale), 0.0f, kLargestScaleCode)) : 0;
        encode_nf4(values + i, scale * static_cast<float>(out[0]), out + 1);
      }
      return scale;
    }
    case WeightFormat::fp8: {
      const float scale = largest / kLargestF8;
      for (int64_t i = 0; i < k; ++i) out[i] = scale > 0 ? f32_to_f8(values[i] / scale) : uint8_t{0};
      return scale;
    }
    case WeightFormat::int8: {
      const float scale = largest / 127;
      for (int64_t i = 0; i < k; ++i)
        out[i] = scale > 0 ? static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(values[i] / scale), -127.0f, 127.0f)))
                           : uint8_t{0};
      return scale;
    }
    default: break;
  }
  QUINTET_CHECK(false, "format {} is rounded in another way", format_info(format).name);
  return 1;
}

}  // namespace

bool is_direct_format(WeightFormat format) {
  return format == WeightFormat::nf4 || format == WeightFormat::nf4_dq || format == WeightFormat::fp8 ||
         format == WeightFormat::int8;
}

QuantizedMatrix quantize_direct(const MatrixToQuantize& matrix, WeightFormat format) {
  const FormatInfo& info = format_info(format);
  QUINTET_CHECK(is_direct_format(format) && matrix.k % info.block_weights == 0, "{} inputs as {}", matrix.k, info.name);
  QuantizedMatrix made{.format = format, .n = matrix.n, .k = matrix.k};
  const auto row_bytes = static_cast<size_t>(format_bytes_of(format, static_cast<uint64_t>(matrix.k)));
  made.blocks.resize(static_cast<size_t>(matrix.n) * row_bytes);
  if (info.decode_scaled) made.row_scales.resize(static_cast<size_t>(matrix.n));
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const float scale = encode_row(format, matrix.weights + row * matrix.k, matrix.k,
                                   made.blocks.data() + static_cast<size_t>(row) * row_bytes);
    if (info.decode_scaled) made.row_scales[static_cast<size_t>(row)] = scale;
  });
  return made;
}

}  // namespace quintet
