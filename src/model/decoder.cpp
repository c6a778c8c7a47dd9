// Embedding, layers, head: one description of the forward pass for all architectures.
#include "model/decoder.h"

#include <algorithm>

#include "backend/sampler.h"
#include "base/check.h"
#include "base/units.h"

namespace quintet {
namespace {

int32_t qkv_width(const ModelConfig& config) {
  return (config.heads + 2 * config.kv_heads) * config.head_dim;
}

MatrixView first_rows(MatrixView view, int32_t rows) {
  QUINTET_CHECK(rows <= view.rows, "a step of {} rows in a workspace of {}", rows, view.rows);
  view.rows = rows;
  return view;
}

const Weight* or_null(const Weight& weight) { return weight.empty() ? nullptr : &weight; }

}  // namespace

StepLimits step_limits(const ModelConfig& config, const WorkspaceLimits& limits) {
  return {.rows = limits.rows,
          .seqs = limits.seqs,
          .logit_rows = limits.logit_rows,
          .context = limits.context,
          .hidden = config.hidden,
          .max_k = std::max({config.hidden, config.ffn, config.heads * config.head_dim}),
          .max_n = std::max({config.hidden, 2 * config.ffn, qkv_width(config)}),
          .vocabulary = config.vocabulary,
          .max_heads = config.heads,
          .max_head_dim = config.head_dim,
          .unfused = limits.unfused};
}

/// Hands out parts of one buffer, or, without a buffer, counts what they would take.
class Workspace::Arena {
 public:
  explicit Arena(uint8_t* base) : base_(base) {}

  MatrixView matrix(DType type, int64_t rows, int64_t cols) {
    return {take(rows * cols * static_cast<int64_t>(dtype_bytes(type))), type, rows, cols, cols};
  }
  template <class T>
  T* array(int64_t count) {
    return static_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }

  uint64_t used_bytes() const { return used_bytes_; }

 private:
  void* take(int64_t bytes) {
    void* data = base_ ? base_ + used_bytes_ : nullptr;
    used_bytes_ += (static_cast<uint64_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    return data;
  }

  static constexpr uint64_t kAlignment = 256;
  uint8_t* base_;
  uint64_t used_bytes_ = 0;
};

void Workspace::lay_out(const ModelConfig& config, DType activation, Arena& arena) {
  residual_ = arena.matrix(DType::f32, limits_.rows, config.hidden);
  qkv_ = arena.matrix(activation, limits_.rows, qkv_width(config));
  attention_ = arena.matrix(activation, limits_.rows, int64_t{config.heads} * config.head_dim);
  gate_up_ = arena.matrix(activation, limits_.rows, int64_t{2} * config.ffn);
  mlp_ = arena.matrix(activation, limits_.rows, config.ffn);
  if (config.post_norms) scratch_ = arena.matrix(DType::f32, limits_.rows, config.hidden);
  if (limits_.unfused)
    unfused_ = {.normed = arena.matrix(activation, limits_.rows, config.hidden),
                .projected = arena.matrix(DType::f32, limits_.rows, config.hidden)};
  gathered_ = arena.matrix(DType::f32, limits_.logit_rows, config.hidden);
  logits_ = arena.matrix(DType::f32, limits_.logit_rows, config.vocabulary);
  sampled_ = arena.array<Sampled>(limits_.logit_rows);
  alternatives_ = arena.array<Alternative>(int64_t{limits_.logit_rows} * kAlternatives);
}

uint64_t Workspace::bytes_needed(const ModelConfig& config, const WorkspaceLimits& limits, DType activation) {
  Workspace counted;
  counted.limits_ = limits;
  Arena arena(nullptr);
  counted.lay_out(config, activation, arena);
  return arena.used_bytes();
}

Result<Workspace> Workspace::make(Backend& backend, const ModelConfig& config,
                                  const WorkspaceLimits& limits) {
  QUINTET_CHECK(limits.rows > 0 && limits.seqs > 0 && limits.logit_rows > 0 &&
                    limits.logit_rows <= limits.rows && limits.context > 0,
                "workspace of {} rows, {} sequences, {} logit rows, {} tokens", limits.rows, limits.seqs,
                limits.logit_rows, limits.context);
  const DType activation = backend.info().activation;
  Workspace workspace;
  workspace.limits_ = limits;
  const uint64_t bytes = bytes_needed(config, limits, activation);
  TRY_ASSIGN(workspace.buffer_, backend.allocate(bytes, BufferUse::workspace));
  Arena arena(workspace.buffer_.as<uint8_t>());
  workspace.lay_out(config, activation, arena);
  TRY(backend.reserve(step_limits(config, limits)));
  return workspace;
}

MatrixView Workspace::logits(int32_t logit_rows) const { return first_rows(logits_, logit_rows); }

/// The buffers of one step and what its layers have in common.
struct ForwardPass {
  Ops& ops;
  const ForwardArgs& args;
  const ModelConfig& config = args.model->config;
  const ModelWeights& weights = args.model->weights;
  const StepView& step = *args.step;
  const Workspace& workspace = *args.workspace;

  MatrixView residual = first_rows(workspace.residual_, step.rows);
  MatrixView qkv = first_rows(workspace.qkv_, step.rows);
  MatrixView attention = first_rows(workspace.attention_, step.rows);
  MatrixView gate_up = first_rows(workspace.gate_up_, step.rows);
  MatrixView mlp = first_rows(workspace.mlp_, step.rows);
  MatrixView scratch = config.post_norms ? first_rows(workspace.scratch_, step.rows) : MatrixView{};

  NormArgs norm(const Weight& weight) const { return {.weight = or_null(weight), .eps = config.norm_eps}; }

  const Weight* head_weight() const { return weights.head.empty() ? &weights.embedding : &weights.head; }

  AttentionSpec attention_spec(int32_t index) const {
    const LayerConfig& layer = config.layer[static_cast<size_t>(index)];
    const RopeConfig& rope = config.ropes[static_cast<size_t>(layer.rope)];
    return {
        .layer = index,
        .heads = config.heads,
        .kv_heads = config.kv_heads,
        .head_dim = config.head_dim,
        .scale = config.attention_scale,
        .sliding_window = layer.sliding_window,
        .rope = {
            .style = rope.style, .dims = rope.dims, .inv_freq = rope.inv_freq.data(), .scale = rope.scale}};
  }

  void layer(int32_t index) {
    const LayerWeights& layer = weights.layer[static_cast<size_t>(index)];
    const bool is_last = index + 1 == config.layers;
    const Weight* next_layer = is_last ? head_weight() : &weights.layer[static_cast<size_t>(index) + 1].qkv;

    ops.begin_layer(index);
    ops.attn_in(step, {.x = residual,
                       .norm = norm(layer.attn_norm),
                       .w = &layer.qkv,
                       .bias = or_null(layer.qkv_bias),
                       .qkv = qkv,
                       .next_weight = &layer.attn_out});
    ops.rope_store_attend(step, {.qkv = qkv,
                                 .attention = attention_spec(index),
                                 .q_norm = norm(layer.q_norm),
                                 .k_norm = norm(layer.k_norm),
                                 .kv = args.kv,
                                 .out = attention});
    ops.attn_out(step, {.x = attention,
                        .w = &layer.attn_out,
                        .bias = or_null(layer.attn_out_bias),
                        .post_norm = norm(layer.post_attn_norm),
                        .residual = residual,
                        .scratch = scratch,
                        .next_weight = &layer.gate_up});
    ops.mlp_in(step, {.x = residual,
                      .norm = norm(layer.mlp_norm),
                      .w = &layer.gate_up,
                      .activation = config.activation,
                      .gate_up = gate_up,
                      .out = mlp,
                      .next_weight = &layer.mlp_out});
    ops.mlp_out(step, {.x = mlp,
                       .w = &layer.mlp_out,
                       .post_norm = norm(layer.post_mlp_norm),
                       .residual = residual,
                       .scratch = scratch,
                       .next_weight = next_layer});
    ops.end_layer(index);
  }

  void run() {
    ops.embed(step, {.table = &weights.embedding, .scale = config.embedding_scale, .out = residual});
    for (int32_t index = 0; index < config.layers; ++index) layer(index);
    if (step.logit_rows == 0) return;  // a chunk of a prompt that is not its end
    ops.head(step, {.x = residual,
                    .norm = norm(weights.output_norm),
                    .w = head_weight(),
                    .gathered = first_rows(workspace.gathered_, step.logit_rows),
                    .logits = workspace.logits(step.logit_rows)});
  }
};

void forward(Ops& ops, const ForwardArgs& args) { ForwardPass{ops, args}.run(); }

void sample(Ops& ops, const ForwardArgs& args, bool with_alternatives) {
  const Workspace& workspace = *args.workspace;
  ops.sample(*args.step, {.logits = workspace.logits(args.step->logit_rows),
                          .out = workspace.sampled(),
                          .alternatives = with_alternatives ? workspace.alternatives() : nullptr});
}

}  // namespace quintet
