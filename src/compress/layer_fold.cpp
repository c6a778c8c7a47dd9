// Searches exponents, and folds scales into what comes before.
#include "compress/layer_fold.h"

#include <algorithm>

#include "base/check.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

constexpr int64_t kSampledRows = 256;  // of the weights that share an input

/// The index of the scale that divides row `row` of the stacked weight, or -1. v: of the first head that reads it.
int64_t divisor_of(TensorPart part, const ModelConfig& config, int64_t row) {
  const int64_t q_rows = int64_t{config.heads} * config.head_dim, kv_rows = int64_t{config.kv_heads} * config.head_dim;
  if (part == TensorPart::qkv || part == TensorPart::qkv_bias) {
    const int64_t v = row - q_rows - kv_rows;
    if (v < 0) return -1;
    return v / config.head_dim * (config.heads / config.kv_heads) * config.head_dim + v % config.head_dim;
  }
  if (part == TensorPart::gate_up) return row < config.ffn ? -1 : row - config.ffn;
  return -1;
}

/// Rows spread over the tensors, decoded: [rows, k].
Result<std::vector<float>> sample_rows(const std::vector<const TensorTask*>& tensors, int64_t k) {
  int64_t all = 0;
  for (const TensorTask* task : tensors) all += task->tensor->weight.n;
  const int64_t count = std::min(all, kSampledRows);
  std::vector<float> rows(static_cast<size_t>(count * k));
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = i * all / count;
    for (const TensorTask* task : tensors) {
      const HostWeight& weight = task->tensor->weight;
      if (row < weight.n) {
        QuantizedMatrix made;
        TRY_ASSIGN(const HostWeight one, made_of(weight.slice_rows(row, 1), made));
        decode_row(one, 0, rows.data() + i * k);
        break;
      }
      row -= weight.n;
    }
  }
  return rows;
}

/// Mean over the heads that read the same keys and values, for each of them.
std::vector<float> share_among_heads(const std::vector<float>& moments, const ModelConfig& config) {
  const int64_t group = config.heads / config.kv_heads, dim = config.head_dim;
  std::vector<float> shared(moments.size());
  for (int64_t kv = 0; kv < config.kv_heads; ++kv)
    for (int64_t d = 0; d < dim; ++d) {
      float sum = 0;
      for (int64_t h = 0; h < group; ++h) sum += moments[static_cast<size_t>((kv * group + h) * dim + d)];
      for (int64_t h = 0; h < group; ++h)
        shared[static_cast<size_t>((kv * group + h) * dim + d)] = sum / static_cast<float>(group);
    }
  return shared;
}

}  // namespace

bool LayerFold::touches(const TensorPlace& place) const {
  switch (place.part) {
    case TensorPart::qkv: return !scales[0].empty() || !scales[1].empty();
    case TensorPart::attn_out: return !scales[1].empty();
    case TensorPart::gate_up: return !scales[2].empty() || !scales[3].empty();
    case TensorPart::mlp_out: return !scales[3].empty();
    case TensorPart::qkv_bias: return !scales[1].empty();
    case TensorPart::attn_norm: return !scales[0].empty();
    case TensorPart::mlp_norm: return !scales[2].empty();
    default: return false;
  }
}

void LayerFold::apply(const TensorPlace& place, const ModelConfig& config, int64_t n, int64_t k, float* values) const {
  if (!touches(place)) return;
  if (place.part == TensorPart::attn_norm || place.part == TensorPart::mlp_norm) {
    const std::vector<float>& by = scales[place.part == TensorPart::attn_norm ? 0 : 2];
    const float one = place.plus_one ? 1 : 0;
    for (int64_t i = 0; i < k && !by.empty(); ++i) values[i] = (values[i] + one) / by[static_cast<size_t>(i)] - one;
    return;
  }
  const std::vector<float>& rows = scales[place.part == TensorPart::gate_up ? 3 : 1];
  if (place.part == TensorPart::qkv_bias) {
    for (int64_t i = 0; i < k && !rows.empty(); ++i)
      if (const int64_t by = divisor_of(place.part, config, place.first_row + i); by >= 0)
        values[i] /= rows[static_cast<size_t>(by)];
    return;
  }
  if (place.input() < 0) return;
  const std::vector<float>& columns = scales[place.input()];
  for (int64_t r = 0; r < n; ++r) {
    const int64_t by = rows.empty() ? -1 : divisor_of(place.part, config, place.first_row + r);
    const float divisor = by < 0 ? 1 : rows[static_cast<size_t>(by)];
    for (int64_t i = 0; i < k; ++i)
      values[r * k + i] *= (columns.empty() ? 1 : columns[static_cast<size_t>(i)]) / divisor;
  }
}

std::vector<float> LayerFold::moments(int input, const std::vector<float>& before) const {
  std::vector<float> after = before;
  for (size_t i = 0; i < after.size() && !scales[input].empty(); ++i)
    after[i] /= scales[input][i] * scales[input][i];
  return after;
}

Result<LayerFold> search_fold(const std::vector<const TensorTask*>& layer, const ModelConfig& config,
                              const LayerStatistics& statistics, int threads) {
  LayerFold fold;
  for (int input = 0; input < kLayerInputs; ++input) {
    std::vector<const TensorTask*> tensors;
    const IntegerFormat* format = nullptr;
    for (const TensorTask* task : layer)
      if (task->place.input() == input) {
        tensors.push_back(task);
        if (task->integers) format = &*task->integers;
      }
    if (!format) continue;  // all of them stay as they are
    const InputStatistics& of = statistics[static_cast<size_t>(input)];
    TRY_ASSIGN(const std::vector<float> rows, sample_rows(tensors, of.k));
    const std::vector<float> sizes = input == 1 ? share_among_heads(of.moments, config) : of.moments;
    fold.scales[input] = search_input_scales(
        {.name = tensors.front()->tensor->weight.name,
         .n = static_cast<int64_t>(rows.size()) / of.k,
         .k = of.k,
         .weights = rows.data(),
         .moments = of.moments,
         .threads = threads},
        *format, sizes);
  }
  return fold;
}

}  // namespace quintet
