// Random weights in the shapes of large models.
#include "model/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "quant/integer_format.h"
#include "tensor/half.h"
#include "text/bpe_bytes.h"

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
    Shape{"tiny-96", 2, 576, 640, 6, 2, 96, 600, 4096, false},
    Shape{"tiny-256", 2, 512, 768, 16, 2, 64, 512, 4096, false},  // whole blocks of the k-quants; eight query heads share a key
    Shape{"tiny-ffn", 2, 1024, 13312, 8, 2, 128, 512, 4096, false},  // several panels of gate and up for each block of any GPU
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
  BlockPool(WeightFormat format, uint64_t most_weights, int64_t most_rows, uint64_t seed) : info_(format_info(format)), random_(seed) {
    const uint64_t blocks = most_weights / static_cast<uint64_t>(info_.block_weights) + kOffsets;
    bytes_.resize(blocks * static_cast<uint64_t>(info_.block_bytes));
    for (size_t i = 0; i + 8 <= bytes_.size(); i += 8) {
      const uint64_t word = random_.next();
      std::memcpy(&bytes_[i], &word, 8);
    }
    for (uint64_t block = 0; block < blocks; ++block) set_scales(&bytes_[block * static_cast<uint64_t>(info_.block_bytes)]);
    if (!info_.decode_scaled) return;
    for (int64_t row = 0; row < most_rows; ++row) row_scales_.push_back(row_scale());
  }

  HostWeight matrix(std::string_view name, int64_t n, int64_t k) {
    const uint64_t offset = random_.next() % kOffsets * static_cast<uint64_t>(info_.block_bytes), bytes = format_bytes_of(info_.format, static_cast<uint64_t>(n * k));
    QUINTET_CHECK(kOffsets * static_cast<uint64_t>(info_.block_bytes) + bytes <= bytes_.size(), "{}: {} x {} random weights are more than there are", name, n, k);
    HostWeight weight = {.name = name, .format = info_.format, .n = n, .k = k, .bytes = {bytes_.data() + offset, bytes}};
    if (!row_scales_.empty()) weight.row_scales = {reinterpret_cast<const uint8_t*>(row_scales_.data()), static_cast<size_t>(n) * sizeof(float)};
    return weight;
  }

 private:
  static constexpr uint64_t kOffsets = 1 << 16;

  static constexpr float kDeviation = 0.011f;  ///< of weights: about 1 / sqrt(8192), as those of trained models

  float jitter() { return 1 + 0.3f * random_.uniform(); }

  float row_scale() {
    switch (info_.format) {
      case WeightFormat::nf4_dq: return kDeviation / (0.55f * 128) * jitter();  // scales of blocks are bytes, 128 on average
      case WeightFormat::fp8: return kDeviation / 112 * jitter();
      default: return kDeviation / 74 * jitter();  // bytes
    }
  }

  void set_scales(uint8_t* block) {
    const float jitter = this->jitter();
    const auto put = [&](int at, float value) {
      const uint16_t bits = f32_to_f16(value);
      std::memcpy(block + at, &bits, sizeof bits);
    };
    switch (info_.format) {
      case WeightFormat::f32: {
        const float value = kDeviation * 1.7f * random_.uniform();
        std::memcpy(block, &value, sizeof value);
        break;
      }
      case WeightFormat::f16: put(0, kDeviation * 1.7f * random_.uniform()); break;
      case WeightFormat::bf16: {
        const float value = kDeviation * 1.7f * random_.uniform();
        std::memcpy(block, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
        break;
      }
      case WeightFormat::nf4: put(0, kDeviation / 0.55f * jitter); break;
      case WeightFormat::nf4_dq: block[0] = static_cast<uint8_t>(64 + block[0] / 2); break;
      case WeightFormat::fp8:
        for (int i = 0; i < info_.block_bytes; ++i)
          if ((block[i] & 0x7f) == 0x7f) block[i] ^= 1;  // NaN
        break;
      case WeightFormat::int8: break;
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
      case WeightFormat::iq2_xxs:
      case WeightFormat::iq2_xs:
      case WeightFormat::iq2_s: put(0, kDeviation / (20 * 2.3f) * jitter); break;
      case WeightFormat::iq3_xxs: put(0, kDeviation / (30 * 4.6f) * jitter); break;
      case WeightFormat::iq3_s: put(0, kDeviation / (8 * 18.4f) * jitter); break;
      default: {  // the project's integers and q4_0: codes are uniform
        const IntegerFormat shape = *integer_format(info_.format);
        const float spread = 4.6f / 16 * static_cast<float>(1 << shape.bits);
        put(0, kDeviation / spread * jitter);
        if (shape.minimum) put(2, -kDeviation * static_cast<float>(shape.max_code()) / 2 / spread * jitter);
        break;
      }
    }
  }

  const FormatInfo& info_;
  Random random_;
  std::vector<uint8_t> bytes_;
  std::vector<float> row_scales_;
};

/// Random outliers of matrices of one width: as many in each row, one in each stretch of it. Matrices take the first rows.
struct OutlierPool {
  std::vector<uint32_t> begin = {0};
  std::vector<uint16_t> columns, values;

  void extend(int64_t rows, int64_t k, double share, Random& random) {
    const auto each = std::max<int64_t>(1, std::llround(share * static_cast<double>(k)));
    while (static_cast<int64_t>(begin.size()) <= rows) {
      for (int64_t i = 0; i < each; ++i) {
        const int64_t from = i * k / each, to = (i + 1) * k / each;
        columns.push_back(static_cast<uint16_t>(from + static_cast<int64_t>(random.next() % static_cast<uint64_t>(to - from))));
        values.push_back(f32_to_f16(0.1f * random.uniform()));
      }
      begin.push_back(static_cast<uint32_t>(columns.size()));
    }
  }
  Outliers view(int64_t rows) const {
    const auto bytes = [](const auto& values, size_t count) {
      return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(values.data()), count * sizeof(values[0]));
    };
    return {.row_begin = bytes(begin, static_cast<size_t>(rows) + 1), .columns = bytes(columns, columns.size()), .values = bytes(values, values.size())};
  }
};

/// What weights are prepared from, and may borrow from as they may from a mapped file.
struct Source {
  BlockPool pool;
  std::vector<float> ones;
  std::map<int64_t, OutlierPool> outliers;  ///< by width
};

Result<const Shape*> find_shape(std::string_view name) {
  std::string names;
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return &shape;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", shape.name);
  }
  return bad_input(fmt::format("--shape: found '{}', allowed are {}", name, names));
}

ModelConfig config_of(const Shape& shape, int32_t layers) {
  ModelConfig config = {.architecture = shape.qkv_bias ? "qwen2" : "llama",
                        .name = fmt::format("random {}", shape.name),
                        .layers = layers > 0 ? layers : shape.layers,
                        .hidden = shape.hidden,
                        .ffn = shape.ffn,
                        .heads = shape.heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .vocabulary = shape.vocabulary,
                        .context = shape.context,
                        .attention_scale = 1 / std::sqrt(static_cast<float>(shape.head_dim)),
                        .qkv_bias = shape.qkv_bias};
  RopeConfig rope = {.style = RopeStyle::halves, .dims = shape.head_dim};
  for (int32_t i = 0; i < shape.head_dim / 2; ++i)
    rope.inv_freq.push_back(static_cast<float>(std::pow(500000.0, -2.0 * i / shape.head_dim)));
  config.ropes = {rope};
  config.layer.assign(static_cast<size_t>(config.layers), {});
  return config;
}

/// A weight to make: the rows of its parts, or, for a vector, its length as k.
struct Planned {
  Weight* target;
  WeightRole role;
  std::string_view name;
  std::vector<int64_t> rows;
  int64_t k;
};

/// In the order of a forward pass. Sizes `weights.layer`.
std::vector<Planned> plan(const ModelConfig& config, ModelWeights& weights) {
  const int64_t hidden = config.hidden, ffn = config.ffn, vocabulary = config.vocabulary;
  const int64_t q = int64_t{config.heads} * config.head_dim, kv = int64_t{config.kv_heads} * config.head_dim;
  std::vector<Planned> list;
  list.push_back({&weights.embedding, WeightRole::embedding, "embedding", {vocabulary}, hidden});
  weights.layer.resize(static_cast<size_t>(config.layers));
  for (LayerWeights& layer : weights.layer) {
    list.push_back({&layer.attn_norm, WeightRole::vector, "attn_norm", {1}, hidden});
    list.push_back({&layer.qkv, WeightRole::qkv, "qkv", {q, kv, kv}, hidden});
    if (config.qkv_bias) list.push_back({&layer.qkv_bias, WeightRole::vector, "qkv_bias", {1}, q + 2 * kv});
    list.push_back({&layer.attn_out, WeightRole::linear, "attn_out", {hidden}, q});
    list.push_back({&layer.mlp_norm, WeightRole::vector, "mlp_norm", {1}, hidden});
    list.push_back({&layer.gate_up, WeightRole::gate_up, "gate_up", {ffn, ffn}, hidden});
    list.push_back({&layer.mlp_out, WeightRole::linear, "mlp_out", {hidden}, ffn});
  }
  list.push_back({&weights.output_norm, WeightRole::vector, "output_norm", {1}, hidden});
  list.push_back({&weights.head, WeightRole::head, "head", {vocabulary}, hidden});
  return list;
}

/// Ids below 256 are bytes; the others are written as their number and never made from text.
Result<std::shared_ptr<const Tokenizer>> number_tokenizer(int32_t vocabulary) {
  TokenizerSpec spec;
  spec.origin = "random model";
  spec.pre_tokenizers.push_back({.kind = PreTokenizerStep::Kind::byte_level, .use_regex = false});
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    spec.tokens.push_back(to_stand_ins({&c, 1}));
  }
  for (int32_t id = 256; id < vocabulary; ++id) spec.tokens.push_back(to_stand_ins(fmt::format(" #{}", id)));
  TRY_ASSIGN(auto tokenizer, make_tokenizer(std::move(spec)));
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Status add_texts(Model& model) {
  TRY_ASSIGN(model.tokenizer, number_tokenizer(model.config.vocabulary));
  model.chat_template_source = "{% for message in messages %}{{ message.content }}\n{% endfor %}";
  model.chat_template_origin = "random model";
  TRY_ASSIGN(auto parsed, ChatTemplate::parse(model.chat_template_source));
  model.chat_template = std::make_shared<const ChatTemplate>(std::move(parsed));
  return {};
}

}  // namespace

Result<ModelConfig> synthetic_config(std::string_view shape, int32_t layers) {
  TRY_ASSIGN(const Shape* found, find_shape(shape));
  return config_of(*found, layers);
}

Result<std::unique_ptr<Model>> make_synthetic_model(const SyntheticOptions& options, Backend& backend) {
  TRY_ASSIGN(const Shape* shape, find_shape(options.shape));
  const int block = format_info(options.format).block_weights;
  for (const int k : {shape->hidden, shape->ffn, shape->heads * shape->head_dim})
    if (k % block)
      return bad_input(fmt::format("--shape: found '{}', whose rows of {} weights are no whole blocks of {} ({} weights)", shape->name, k,
                                   format_info(options.format).name, block));
  auto model = std::make_unique<Model>();
  model->config = config_of(*shape, options.layers);
  model->path = model->config.name;
  const ModelConfig& config = model->config;
  TRY(add_texts(*model));

  const std::vector<Planned> list = plan(config, model->weights);
  std::map<int64_t, OutlierPool> outliers;
  const auto has_outliers = [&](WeightRole role) {
    return options.outliers > 0 && (role == WeightRole::linear || role == WeightRole::qkv || role == WeightRole::gate_up);
  };
  Random random(options.seed + 1);
  for (const Planned& planned : list)
    if (has_outliers(planned.role))
      for (const int64_t n : planned.rows) outliers[planned.k].extend(n, planned.k, options.outliers, random);
  const auto parts_of = [&](const Planned& planned) {
    const bool is_vector = planned.role == WeightRole::vector;
    std::vector<HostWeight> parts;
    for (const int64_t n : planned.rows) {
      parts.push_back({.name = planned.name, .format = is_vector ? WeightFormat::f32 : options.format, .n = n, .k = planned.k});
      if (has_outliers(planned.role)) parts.back().outliers = outliers.at(planned.k).view(n);
    }
    return parts;
  };
  if (options.admit) {
    ModelNeeds needs{.config = config};
    for (const Planned& planned : list) {
      TRY_ASSIGN(const uint64_t bytes, backend.packed_bytes(planned.role, parts_of(planned)));
      needs.weights_bytes += bytes;
    }
    TRY(options.admit(needs));
  }

  const auto most = int64_t{config.hidden} * std::max({config.ffn, config.vocabulary, config.heads * config.head_dim});
  const int64_t most_rows = std::max({config.hidden, config.ffn, config.vocabulary, config.heads * config.head_dim});
  const auto longest = static_cast<size_t>(std::max(config.hidden, (config.heads + 2 * config.kv_heads) * config.head_dim));
  const auto source = std::make_shared<Source>(Source{.pool = BlockPool(options.format, static_cast<uint64_t>(most), most_rows, options.seed),
                                                      .ones = std::vector<float>(longest, 1.0f), .outliers = {}});
  for (const Planned& planned : list) {
    std::vector<HostWeight> parts = parts_of(planned);
    for (HostWeight& part : parts) {
      if (planned.role == WeightRole::vector) {
        part.bytes = {reinterpret_cast<const uint8_t*>(source->ones.data()), static_cast<size_t>(part.k) * sizeof(float)};
      } else {
        const Outliers kept = part.outliers;
        part = source->pool.matrix(part.name, part.n, part.k);
        part.outliers = kept;
      }
    }
    TRY_ASSIGN(*planned.target, backend.prepare(planned.role, parts));
    model->weights.bytes += planned.target->bytes;
  }
  model->file_bytes = model->weights.bytes;
  source->outliers = std::move(outliers);
  model->files = source;
  return model;
}

}  // namespace quintet
