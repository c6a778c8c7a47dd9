// What happens to single rows: norms, quantization of activations to 16 bits, gates, additions, halves.

namespace quintet::cpu::QUINTET_TARGET {
namespace {

/// 1 / sqrt(mean(x^2) + eps). The tree: 64 partial sums (element i to sum i mod 64), ascending; then pairs of
/// vectors; then lanes l with l + 8, + 4, + 2, + 1. Elements beyond the last multiple of 16 are added last,
/// one by one. NaN where the sum of squares is beyond FP32: 0 would make zeros of such a row, and hide it.
float inverse_rms(const float* x, int64_t cols, float eps) {
  F sum[4] = {set(0), set(0), set(0), set(0)};
  int64_t i = 0;
  for (; i + 64 <= cols; i += 64)
    for (int j = 0; j < 4; ++j) {
      const F v = load(x + i + j * 16);
      sum[j] = fma(v, v, sum[j]);
    }
  for (int j = 0; i + 16 <= cols; i += 16, ++j) {
    const F v = load(x + i);
    sum[j] = fma(v, v, sum[j]);
  }
  float total = sum_lanes(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
  for (; i < cols; ++i) total += x[i] * x[i];
  if (!(total <= __FLT_MAX__)) return __builtin_nanf("");
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(total) / static_cast<double>(cols) +
                                                 static_cast<double>(eps)));
}

void norm_row(const float* x, int64_t cols, const float* weight, float eps, float* out) {
  const float inverse = inverse_rms(x, cols, eps);
  int64_t i = 0;
  for (; i + 16 <= cols; i += 16) store(mul(mul(load(x + i), set(inverse)), load(weight + i)), out + i);
  for (; i < cols; ++i) out[i] = x[i] * inverse * weight[i];
}

/// Stores 16 int32 as int16.
HWY_INLINE void store_narrow(I a, int16_t* p) {
  using D16 = hn::Rebind<int16_t, DI>;
  EACH hn::StoreU(hn::DemoteTo(D16(), a.v[i]), D16(), p + i * kLanes);
}

/// One block of 32 values to 16-bit codes of a scale of their own; a value that is not finite makes the block
/// NaN.
HWY_INLINE void quantize_block(const PackRow& a, const float* y, int64_t block) {
  constexpr int32_t kInfinityBits = 0x7F800000;
  const F y0 = load(y), y1 = load(y + 16);
  const int32_t bits = max_lanes_i32(max_i32(magnitude_bits(y0), magnitude_bits(y1)));
  float largest;
  memcpy(&largest, &bits, sizeof(largest));
  float scale, inverse;
  // Below 1e-30 the inverse would overflow; such a block is zero beside anything that it could be added to.
  if (bits < kInfinityBits && largest >= 1e-30f) [[likely]] {
    scale = largest / 32767.0f;
    inverse = 32767.0f / largest;
  } else {
    scale = bits < kInfinityBits ? 0.0f : __builtin_nanf("");
    inverse = 0;
  }
  I q0 = to_nearest(mul(y0, set(inverse))), q1 = to_nearest(mul(y1, set(inverse)));
  if (bits >= kInfinityBits) q0 = q1 = set_i32(0);
  alignas(64) int16_t codes[32];
  store_narrow(q0, codes);
  store_narrow(q1, codes + 16);
  int32_t* out = a.pairs + block * kPairs * a.rows + a.index;
#pragma GCC unroll 16
  for (int p = 0; p < kPairs; ++p) memcpy(out + p * a.rows, codes + 2 * p, 4);
  a.scale[block * a.rows + a.index] = scale;
  a.sum[block * a.rows + a.index] = static_cast<float>(sum_lanes_i32(add_i32(q0, q1))) * scale;
  if (a.sum16) {
    a.sum16[(2 * block) * a.rows + a.index] = static_cast<float>(sum_lanes_i32(q0)) * scale;
    a.sum16[(2 * block + 1) * a.rows + a.index] = static_cast<float>(sum_lanes_i32(q1)) * scale;
  }
}

void pack_row(const PackRow& a) {
  const float* y = a.x;
  if (a.norm) {
    norm_row(a.x, a.k, a.norm, a.eps, a.work);
    y = a.work;
  }
  if (a.in_perm) {
    float* permuted = a.norm ? a.work + a.k : a.work;
    for (int64_t i = 0; i < a.k; ++i) permuted[i] = y[a.in_perm[i]];
    y = permuted;
  }
  if (a.pairs)
    for (int64_t block = 0; block < a.k / kBlock; ++block) quantize_block(a, y + block * kBlock, block);
  if (a.values)
    for (int64_t i = 0; i < a.k; ++i) a.values[i * a.rows + a.index] = y[i];
}

template <GateKind kKind>
HWY_INLINE F activate(F g) {
  // silu(g) = g / (1 + e^-g); gelu_tanh(g) = g / (1 + e^-2z), z = sqrt(2 / pi) (g + 0.044715 g^3).
  F z = g;
  if constexpr (kKind == GateKind::gelu_tanh)
    z = mul(mul(set(1.5957691216057308f), g), fma(mul(g, g), set(0.044715f), set(1.0f)));
  return div(g, add(set(1.0f), exp(sub(set(0), z))));
}

template <GateKind kKind>
void gate_as(const float* g, const float* up, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(mul(activate<kKind>(load(g + i)), load(up + i)), out + i);
  if (i < count) {
    alignas(64) float tail[3][16] = {};
    for (int64_t j = i; j < count; ++j) tail[0][j - i] = g[j], tail[1][j - i] = up[j];
    store(mul(activate<kKind>(load(tail[0])), load(tail[1])), tail[2]);
    for (int64_t j = i; j < count; ++j) out[j] = tail[2][j - i];
  }
}

void gate(GateKind kind, const float* g, const float* up, int64_t count, float* out) {
  if (kind == GateKind::silu)
    gate_as<GateKind::silu>(g, up, count, out);
  else
    gate_as<GateKind::gelu_tanh>(g, up, count, out);
}

void add_row(const float* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(add(load(out + i), load(x + i)), out + i);
  for (; i < count; ++i) out[i] += x[i];
}

void to_f16(const float* x, int64_t count, bool nan_to_zero, uint16_t* out) {
  for (int64_t i = 0; i < count; i += 16) {
    alignas(64) float in[16] = {};
    alignas(64) uint16_t half[16];
    const int64_t n = count - i < 16 ? count - i : 16;
    memcpy(in, x + i, static_cast<size_t>(n) * sizeof(float));
    F v = load(in);
    EACH {
      const auto number = hn::Eq(v.v[i], v.v[i]);
      const auto limited = hn::Min(hn::Max(v.v[i], hn::Set(DF(), -65504.0f)), hn::Set(DF(), 65504.0f));
      v.v[i] = hn::IfThenElse(number, limited, nan_to_zero ? hn::Zero(DF()) : v.v[i]);
    }
    store_f16(v, half);
    memcpy(out + i, half, static_cast<size_t>(n) * sizeof(uint16_t));
  }
}

}  // namespace
}  // namespace quintet::cpu::QUINTET_TARGET
