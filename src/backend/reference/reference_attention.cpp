// Head norms, rotary embedding, the paged cache, and softmax attention over it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/elements.h"
#include "backend/reference/reference_ops.h"
#include "backend/reference/reference_weight.h"

namespace quintet::reference {
namespace {

/// The cached vector [head_dim] of one position: page layout [layer][K|V][head][token][dim].
float* cached(const KvView& kv, const AttentionSpec& spec, int64_t slot, int key_or_value, int64_t head) {
  const int64_t page = slot / kv.page.tokens, offset = slot % kv.page.tokens;
  QUINTET_CHECK(slot >= 0 && page < kv.pages, "cache slot {} of {} pages", slot, kv.pages);
  auto* elements = reinterpret_cast<float*>(static_cast<uint8_t*>(kv.base) + page * kv.page.bytes);
  return elements +
         (((spec.layer * 2 + key_or_value) * spec.kv_heads + head) * kv.page.tokens + offset) * spec.head_dim;
}

/// Normalises and turns one head of qkv in place: columns [begin, begin + head_dim) of `row`.
void norm_and_turn(const RopeStoreArgs& args, int64_t row, int64_t begin, const NormArgs& norm,
                   int32_t position) {
  const AttentionSpec& spec = args.attention;
  std::vector<double> head(static_cast<size_t>(spec.head_dim));
  for (int64_t d = 0; d < spec.head_dim; ++d) head[d] = load(args.qkv, row, begin + d);

  if (norm.weight) {
    std::vector<float> weight(static_cast<size_t>(spec.head_dim));
    unwrap(*norm.weight).decode_row(0, weight.data());
    double squares = 0;
    for (double value : head) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / spec.head_dim + norm.eps);
    for (int64_t d = 0; d < spec.head_dim; ++d) head[d] *= scale * weight[d];
  }

  const RopeSpec& rope = spec.rope;
  for (int32_t i = 0; i < rope.dims / 2; ++i) {
    const int32_t a = rope.style == RopeStyle::halves ? i : 2 * i;
    const int32_t b = rope.style == RopeStyle::halves ? i + rope.dims / 2 : 2 * i + 1;
    const float angle = static_cast<float>(position) * rope.inv_freq[i];  // in float, as models were trained
    const double cosine = std::cos(static_cast<double>(angle)) * rope.scale;
    const double sine = std::sin(static_cast<double>(angle)) * rope.scale;
    const double x = head[a], y = head[b];
    head[a] = x * cosine - y * sine;
    head[b] = y * cosine + x * sine;
  }
  for (int64_t d = 0; d < spec.head_dim; ++d) store(args.qkv, row, begin + d, head[d]);
}

float rounded(DType type, float value) {
  switch (type) {
    case DType::f16: return f16_to_f32(f32_to_f16(value));
    case DType::bf16: return bf16_to_f32(f32_to_bf16(value));
    default: return value;
  }
}

}  // namespace

void ReferenceOps::rope_store(const StepView& step, const RopeStoreArgs& args) {
  const AttentionSpec& spec = args.attention;
  const int64_t dim = spec.head_dim;
  QUINTET_CHECK(args.qkv.rows == step.rows && args.qkv.cols == (spec.heads + 2 * spec.kv_heads) * dim,
                "rope_store: qkv is {} x {}", args.qkv.rows, args.qkv.cols);
  QUINTET_CHECK(spec.rope.dims % 2 == 0 && spec.rope.dims <= dim, "rope over {} of {} dimensions",
                spec.rope.dims, dim);
  for (int32_t r = 0; r < step.rows; ++r) {
    for (int64_t h = 0; h < spec.heads; ++h) norm_and_turn(args, r, h * dim, args.q_norm, step.pos[r]);
    for (int64_t h = 0; h < spec.kv_heads; ++h)
      norm_and_turn(args, r, (spec.heads + h) * dim, args.k_norm, step.pos[r]);
    if (step.kv_slot[r] < 0) continue;  // padding
    for (int64_t h = 0; h < spec.kv_heads; ++h) {
      float* key = cached(args.kv, spec, step.kv_slot[r], 0, h);
      float* value = cached(args.kv, spec, step.kv_slot[r], 1, h);
      for (int64_t d = 0; d < dim; ++d) {
        key[d] = rounded(kv_, load(args.qkv, r, (spec.heads + h) * dim + d));
        value[d] = rounded(kv_, load(args.qkv, r, (spec.heads + spec.kv_heads + h) * dim + d));
      }
    }
  }
}

void ReferenceOps::attend(const StepView& step, const AttendArgs& args) {
  const AttentionSpec& spec = args.attention;
  const int64_t dim = spec.head_dim, heads_a_kv = spec.heads / spec.kv_heads, tokens = args.kv.page.tokens;
  QUINTET_CHECK(args.out.rows == step.rows && args.out.cols == spec.heads * dim, "attend: out is {} x {}",
                args.out.rows, args.out.cols);
  std::vector<double> weight, mixed(static_cast<size_t>(dim));
  for (int32_t r = 0; r < step.rows; ++r) {
    const int64_t last = step.pos[r];
    const int64_t first = spec.sliding_window > 0 ? std::max<int64_t>(0, last - spec.sliding_window + 1) : 0;
    const BlockRef* blocks = step.block_refs + static_cast<int64_t>(step.seq[r]) * step.max_blocks;
    for (int64_t h = 0; h < spec.heads; ++h) {
      std::fill(mixed.begin(), mixed.end(), 0.0);
      if (step.kv_slot[r] >= 0) {
        const auto slot = [&](int64_t p) { return blocks[p / tokens].page * tokens + p % tokens; };
        weight.assign(static_cast<size_t>(last - first + 1), 0.0);
        double largest = -HUGE_VAL, total = 0;
        for (int64_t p = first; p <= last; ++p) {
          const float* key = cached(args.kv, spec, slot(p), 0, h / heads_a_kv);
          double score = 0;
          for (int64_t d = 0; d < dim; ++d)
            score += static_cast<double>(load(args.qkv, r, h * dim + d)) * key[d];
          weight[p - first] = score * spec.scale;
          largest = std::max(largest, weight[p - first]);
        }
        for (double& w : weight) total += w = std::exp(w - largest);
        for (int64_t p = first; p <= last; ++p) {
          const float* value = cached(args.kv, spec, slot(p), 1, h / heads_a_kv);
          for (int64_t d = 0; d < dim; ++d) mixed[d] += weight[p - first] / total * value[d];
        }
      }
      for (int64_t d = 0; d < dim; ++d) store(args.out, r, h * dim + d, mixed[d]);
    }
  }
}

}  // namespace quintet::reference
