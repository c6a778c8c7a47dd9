// What a forward pass may call. A new backend starts with the fine operations; the coarse ones, at the grain a fast
// backend wants, are composed from them here until it overrides them.
//
// Rules: operations do not allocate, do not synchronise, and do not size launches from device data. A row's result
// never depends on the rows beside it. Shape errors are broken invariants; device errors latch and are read once a step.
#pragma once

#include <cstdint>

#include "backend/step_view.h"
#include "backend/weight.h"
#include "tensor/view.h"

namespace quintet {

enum class Activation : uint8_t { silu, gelu_tanh };

/// A norm: x / sqrt(mean(x^2) + eps) * weight. Double or documented-tree reduction, see Numerics::norm_tree.
struct NormArgs {
  const Weight* weight = nullptr;  ///< [1, cols] f32; null: no norm
  float eps = 1e-5f;
};

/// Rotary embedding of one kind of layer. angle(i) = float(pos) * inv_freq[i], in float, as the field's reference does;
/// cosine and sine are multiplied by `scale` (yarn's attention factor).
enum class RopeStyle : uint8_t {
  halves,  ///< pairs (i, i + dims / 2): Hugging Face order
  pairs,   ///< pairs (2 i, 2 i + 1): GGUF order of the llama architecture
};
struct RopeSpec {
  RopeStyle style = RopeStyle::halves;
  int32_t dims = 0;                 ///< leading dimensions of a head that turn; even
  const float* inv_freq = nullptr;  ///< [dims / 2], host memory that outlives the backend's use
  float scale = 1;
};

/// Attention geometry of a layer.
struct AttentionSpec {
  int32_t layer = 0;  ///< index into a page
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 0;             ///< of q . k
  int32_t sliding_window = 0;  ///< a row sees positions pos - window < p <= pos; 0: all p <= pos
  RopeSpec rope;
};

/// The cache that a step reads and writes: `pages` pages of one class, `bytes` apart.
struct KvView {
  void* base = nullptr;
  int64_t pages = 0;
  int32_t layers = 0;
  PageClass page;
};

// --- fine operations ---------------------------------------------------------------------------------------------

struct LinearArgs {
  ConstMatrixView x;                ///< [rows, k]
  const Weight* w = nullptr;        ///< [n, k]
  MatrixView out;                   ///< [rows, n]
  NormArgs norm;                    ///< applied to x first, where its weight is set
  const Weight* bias = nullptr;     ///< [1, n] f32
  bool add_to_out = false;          ///< out += product (the residual stream) instead of out =
  const int32_t* in_perm = nullptr; ///< [k] order of the inputs in the packed weight (act-order)
  const Weight* next_weight = nullptr;  ///< what the next product reads: a hint for prefetch
  bool dequantize_first = false;  ///< write the weight out in FP16 first and multiply by that, where Ops::dequantized_bytes is not 0
};

/// out[row] = table[token[row]] * scale.
struct EmbedArgs {
  const Weight* table = nullptr;
  float scale = 1;
  MatrixView out;  ///< [rows, hidden] f32
};

/// Norm over each head of the q and k parts of qkv (in place), RoPE, then K and V stored to the step's slots.
struct RopeStoreArgs {
  MatrixView qkv;  ///< [rows, (heads + 2 kv_heads) head_dim]: q heads, k heads, v heads
  AttentionSpec attention;
  NormArgs q_norm, k_norm;  ///< weights [1, head_dim]
  KvView kv;
};

struct AttendArgs {
  ConstMatrixView qkv;  ///< after rope_store
  MatrixView out;       ///< [rows, heads head_dim]
  AttentionSpec attention;
  KvView kv;
};

/// out = activation(gate) * up, where gate_up is [rows, 2 n]: gate columns, then up columns.
struct GateArgs {
  ConstMatrixView gate_up;
  MatrixView out;  ///< [rows, n]
  Activation activation = Activation::silu;
};

// --- coarse operations -------------------------------------------------------------------------------------------

/// qkv = norm(x) . w^T + bias.
struct AttnInArgs {
  ConstMatrixView x;  ///< residual stream [rows, hidden] f32
  NormArgs norm;
  const Weight* w = nullptr;     ///< role qkv
  const Weight* bias = nullptr;  ///< [1, n] or null
  MatrixView qkv;
  const Weight* next_weight = nullptr;
};

struct RopeStoreAttendArgs {
  MatrixView qkv;
  AttentionSpec attention;
  NormArgs q_norm, k_norm;
  KvView kv;
  MatrixView out;  ///< [rows, heads head_dim]
};

/// residual += post_norm(x . w^T + bias); post_norm is Gemma's, usually absent.
struct ProjectArgs {
  ConstMatrixView x;
  const Weight* w = nullptr;
  const Weight* bias = nullptr;
  NormArgs post_norm;
  MatrixView residual;  ///< [rows, hidden] f32
  MatrixView scratch;   ///< [rows, hidden] f32, used where post_norm is set
  const Weight* next_weight = nullptr;
};

/// out = activation(gate) * up of norm(x).
struct MlpInArgs {
  ConstMatrixView x;
  NormArgs norm;
  const Weight* w = nullptr;  ///< role gate_up
  Activation activation = Activation::silu;
  MatrixView gate_up;  ///< scratch [rows, 2 n]; a fused backend may leave it untouched
  MatrixView out;      ///< [rows, n]
  const Weight* next_weight = nullptr;
};

/// logits[i] = norm(x[logit_row[i]]) . w^T * scale, softcapped where softcap is not 0.
struct HeadArgs {
  ConstMatrixView x;
  NormArgs norm;
  const Weight* w = nullptr;
  MatrixView gathered;  ///< scratch [logit_rows, hidden] f32
  MatrixView logits;    ///< [logit_rows, vocabulary] f32
};

struct SampleArgs {
  MatrixView logits;       ///< [logit_rows, vocabulary] f32; changed (penalties, bias)
  Sampled* out = nullptr;  ///< [logit_rows] in memory of the backend
  Alternative* alternatives = nullptr;  ///< [logit_rows, 20] or null
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual void embed(const StepView& step, const EmbedArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  /// Bytes that LinearArgs::dequantize_first writes, and reads again; 0 where the weight is dense already or this backend cannot. Takes
  /// StepLimits::unfused.
  virtual uint64_t dequantized_bytes(const Weight& weight) const { return (void)weight, uint64_t{0}; }
  /// out = norm(x), row by row.
  virtual void rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) = 0;
  virtual void rope_store(const StepView& step, const RopeStoreArgs& args) = 0;
  virtual void attend(const StepView& step, const AttendArgs& args) = 0;
  virtual void gate(const GateArgs& args) = 0;
  /// out += x.
  virtual void add(ConstMatrixView x, MatrixView out) = 0;
  /// out[i] = x[step.logit_row[i]].
  virtual void gather(const StepView& step, ConstMatrixView x, MatrixView out) = 0;
  virtual void sample(const StepView& step, const SampleArgs& args) = 0;

  virtual void attn_in(const StepView& step, const AttnInArgs& args);
  virtual void rope_store_attend(const StepView& step, const RopeStoreAttendArgs& args);
  virtual void attn_out(const StepView& step, const ProjectArgs& args);
  virtual void mlp_in(const StepView& step, const MlpInArgs& args);
  virtual void mlp_out(const StepView& step, const ProjectArgs& args);
  virtual void head(const StepView& step, const HeadArgs& args);

  /// Called around each layer; a system layer that streams weights hooks in here.
  virtual void begin_layer(int layer) { (void)layer; }
  virtual void end_layer(int layer) { (void)layer; }
};

}  // namespace quintet
