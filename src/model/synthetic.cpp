// Random weights in the shapes of large models.
#include "model/synthetic.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "tensor/half.h"

namespace quintet {
namespace {

struct Shape {
  std::string_view name;
  int32_t layers, hidden, ffn, heads, kv_heads, head_dim, vocabulary, context;
  bool qkv_bias;
};

constexpr std::array kShapes = {
    Shape{"tiny", 2, 512, 896, 8, 2, 64, 1000, 4096, true},
    Shape{"tiny-wide", 2, 640, 1024, 4, 1, 128, 777, 4096, false},
    Shape{"tiny-256", 2, 512, 768, 4, 2, 128, 512, 4096, false},  // whole blocks of the k-quants
    Shape{"llama3-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false},
    Shape{"llama3-70b", 80, 8192, 28672, 64, 8, 128, 128256, 131072, false},
    Shape{"qwen2-72b", 80, 8192, 29568, 64, 8, 128, 152064, 131072, true},
};

/// xorshift64 (Marsaglia 2003): fast enough that weights are made at memory speed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull | 1) {}
  uint64_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_;
  }
  /// Uniform in [-1, 1).
  float uniform() { return static_cast<float>(static_cast<int32_t>(next() >> 32)) * 0x1p-31f; }

 private:
  uint64_t state_;
};

/// A pool of random blocks of one format; matrices start at different places of it, so that no two are alike.
class BlockPool {
 public:
  BlockPool(WeightFormat format, uint64_t most_weights, uint64_t seed) : info_(format_info(format)), random_(seed) {
    const uint64_t blocks = most_weights / static_cast<uint64_t>(info_.block_weights) + kOffsets;
    bytes_.resize(blocks * static_cast<uint64_t>(info_.block_bytes));
    for (size_t i = 0; i + 8 <= bytes_.size(); i += 8) {
      const uint64_t word = random_.next();
      std::memcpy(&bytes_[i], &word, 8);
    }
    for (uint64_t block = 0; block < blocks; ++block) set_scales(&bytes_[block * static_cast<uint64_t>(info_.block_bytes)]);
  }

  HostWeight matrix(std::string_view name, int64_t n, int64_t k) {
    const uint64_t offset = random_.next() % kOffsets * static_cast<uint64_t>(info_.block_bytes);
    return {.name = name, .format = info_.format, .n = n, .k = k,
            .bytes = {bytes_.data() + offset, format_bytes_of(info_.format, static_cast<uint64_t>(n * k))}};
  }

 private:
  static constexpr uint64_t kOffsets = 1 << 16;

  /// Scales such that weights have a deviation of about 1 / sqrt(8192), as those of trained models.
  void set_scales(uint8_t* block) {
    const float jitter = 1 + 0.3f * random_.uniform();
    const auto put = [&](int at, float value) {
      const uint16_t bits = f32_to_f16(value);
      std::memcpy(block + at, &bits, sizeof bits);
    };
    constexpr float kDeviation = 0.011f;
    switch (info_.format) {
      case WeightFormat::f32: {
        const float value = kDeviation * 1.7f * random_.uniform();
        std::memcpy(block, &value, sizeof value);
        break;
      }
      case WeightFormat::f16: put(0, kDeviation * 1.7f * random_.uniform()); break;
      case WeightFormat::q4_1: put(0, kDeviation / 4.6f * jitter), put(2, -kDeviation * 7.5f / 4.6f * jitter); break;
      case WeightFormat::q8_0: put(0, kDeviation / 74 * jitter); break;
      case WeightFormat::q5_0: put(0, kDeviation / 9.2f * jitter); break;
      case WeightFormat::q5_1: put(0, kDeviation / 9.2f * jitter), put(2, -kDeviation * 15.5f / 9.2f * jitter); break;
      // Scales and minima of groups are random 6-bit (Q2_K: 4-bit) numbers, 31.5 (7.5) on average.
      case WeightFormat::q2_k: put(80, kDeviation / (1.1f * 7.5f) * jitter), put(82, kDeviation * 1.5f / (1.1f * 7.5f) * jitter); break;
      case WeightFormat::q3_k: put(108, kDeviation / (2.3f * 18) * jitter); break;
      case WeightFormat::q4_k: put(0, kDeviation / (4.6f * 31.5f) * jitter), put(2, kDeviation * 7.5f / (4.6f * 31.5f) * jitter); break;
      case WeightFormat::q5_k: put(0, kDeviation / (9.2f * 31.5f) * jitter), put(2, kDeviation * 15.5f / (9.2f * 31.5f) * jitter); break;
      case WeightFormat::q6_k: put(208, kDeviation / (18.5f * 74) * jitter); break;
      case WeightFormat::iq4_nl: put(0, kDeviation / 68 * jitter); break;
      case WeightFormat::iq4_xs: put(0, kDeviation / (68 * 18) * jitter); break;
      default: put(0, kDeviation / 4.6f * jitter); break;  // int4_g128, q4_0: the scale comes first
    }
  }

  const FormatInfo& info_;
  Random random_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_synthetic_model(const SyntheticOptions& options, Backend& backend) {
  const Shape* shape = nullptr;
  std::string names;
  for (const Shape& candidate : kShapes) {
    if (candidate.name == options.shape) shape = &candidate;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", candidate.name);
  }
  if (!shape) return bad_input(fmt::format("--shape: found '{}', allowed are {}", options.shape, names));
  switch (options.format) {
    case WeightFormat::bf16: case WeightFormat::iq2_xxs: case WeightFormat::iq2_xs: case WeightFormat::iq2_s: case WeightFormat::iq3_xxs: case WeightFormat::iq3_s:
      return bad_input(fmt::format("--weights: found {}, allowed are int4_g128, f16, f32, q4_0 to q8_0, q2_k to q6_k, iq4_nl, iq4_xs", format_info(options.format).name));
    default: break;
  }
  const int block = format_info(options.format).block_weights;
  for (const int k : {shape->hidden, shape->ffn, shape->heads * shape->head_dim})
    if (k % block)
      return bad_input(fmt::format("--shape: found '{}', whose rows of {} weights are no whole blocks of {} ({} weights)", shape->name, k, format_info(options.format).name, block));
  auto model = std::make_unique<Model>();
  ModelConfig& config = model->config;
  config = {.architecture = shape->qkv_bias ? "qwen2" : "llama", .name = fmt::format("random {}", shape->name),
            .layers = options.layers > 0 ? options.layers : shape->layers, .hidden = shape->hidden, .ffn = shape->ffn, .heads = shape->heads,
            .kv_heads = shape->kv_heads, .head_dim = shape->head_dim, .vocabulary = shape->vocabulary, .context = shape->context,
            .attention_scale = 1 / std::sqrt(static_cast<float>(shape->head_dim)), .qkv_bias = shape->qkv_bias};
  RopeConfig rope = {.style = RopeStyle::halves, .dims = shape->head_dim};
  for (int32_t i = 0; i < shape->head_dim / 2; ++i)
    rope.inv_freq.push_back(static_cast<float>(std::pow(500000.0, -2.0 * i / shape->head_dim)));
  config.ropes = {rope};
  config.layer.assign(static_cast<size_t>(config.layers), {});
  model->path = config.name;

  const int64_t hidden = shape->hidden, qkv = int64_t{shape->heads + 2 * shape->kv_heads} * shape->head_dim;
  const int64_t most = std::max(hidden * shape->ffn, hidden * shape->vocabulary);
  BlockPool pool(options.format, static_cast<uint64_t>(most), options.seed);
  const std::vector<float> ones(static_cast<size_t>(std::max(hidden, qkv)), 1.0f);
  const auto add = [&](Weight& target, WeightRole role, std::span<const HostWeight> parts) -> Status {
    TRY_ASSIGN(target, backend.prepare(role, parts));
    model->weights.bytes += target.bytes;
    return {};
  };
  const auto vector = [&](Weight& target, int64_t size) -> Status {
    const HostWeight part = {.name = "ones", .format = WeightFormat::f32, .n = 1, .k = size,
                             .bytes = {reinterpret_cast<const uint8_t*>(ones.data()), static_cast<size_t>(size) * sizeof(float)}};
    return add(target, WeightRole::vector, {&part, 1});
  };
  const auto matrix = [&](Weight& target, WeightRole role, std::string_view name, std::initializer_list<int64_t> rows, int64_t k) -> Status {
    std::vector<HostWeight> parts;
    for (const int64_t n : rows) parts.push_back(pool.matrix(name, n, k));
    return add(target, role, parts);
  };

  ModelWeights& weights = model->weights;
  TRY(matrix(weights.embedding, WeightRole::embedding, "embedding", {shape->vocabulary}, hidden));
  TRY(matrix(weights.head, WeightRole::head, "head", {shape->vocabulary}, hidden));
  TRY(vector(weights.output_norm, hidden));
  weights.layer.resize(static_cast<size_t>(config.layers));
  const int64_t q = int64_t{shape->heads} * shape->head_dim, kv = int64_t{shape->kv_heads} * shape->head_dim;
  for (LayerWeights& layer : weights.layer) {
    TRY(vector(layer.attn_norm, hidden));
    TRY(matrix(layer.qkv, WeightRole::qkv, "qkv", {q, kv, kv}, hidden));
    if (shape->qkv_bias) TRY(vector(layer.qkv_bias, qkv));
    TRY(matrix(layer.attn_out, WeightRole::linear, "attn_out", {hidden}, q));
    TRY(vector(layer.mlp_norm, hidden));
    TRY(matrix(layer.gate_up, WeightRole::gate_up, "gate_up", {shape->ffn, shape->ffn}, hidden));
    TRY(matrix(layer.mlp_out, WeightRole::linear, "mlp_out", {hidden}, shape->ffn));
  }
  model->file_bytes = weights.bytes;
  return model;
}

}  // namespace quintet
