// The one forward pass: every architecture, every backend, prompts and decode alike.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/unfused_ops.h"
#include "base/result.h"
#include "model/model.h"

namespace quintet {

/// What a caller promises about its steps; everything is sized from it at start.
struct WorkspaceLimits {
  int32_t rows = 0;        ///< rows of a step
  int32_t seqs = 0;        ///< sequences of a step
  int32_t logit_rows = 0;  ///< rows of a step whose logits are wanted
  int32_t context = 0;     ///< tokens of one sequence
  bool unfused = false;    ///< room for UnfusedOps too
};

/// The limits that Backend::reserve() wants, filled in from a model.
StepLimits step_limits(const ModelConfig& config, const WorkspaceLimits& limits);

/// The activations of a step in one buffer of the backend. Made once, after the weights; a step allocates
/// nothing.
class Workspace {
 public:
  /// Bytes that make() will ask the backend for: a counting pass over the same layout.
  static uint64_t bytes_needed(const ModelConfig& config, const WorkspaceLimits& limits, DType activation);

  /// Allocates from `backend`, which must outlive the workspace, and calls its reserve(). no_room names the
  /// bytes.
  static Result<Workspace> make(Backend& backend, const ModelConfig& config, const WorkspaceLimits& limits);

  const WorkspaceLimits& limits() const { return limits_; }

  /// The last step's results, in memory of the backend: logits [logit_rows, vocabulary] f32, sampled
  /// [logit_rows], alternatives [logit_rows, 20]. Sampled ids of one step may feed the next (StepView::prev).
  MatrixView logits(int32_t logit_rows) const;
  Sampled* sampled() const { return sampled_; }
  Alternative* alternatives() const { return alternatives_; }
  /// Where the limits have `unfused`.
  const UnfusedOps::Scratch& unfused() const { return unfused_; }

 private:
  friend struct ForwardPass;
  class Arena;
  void lay_out(const ModelConfig& config, DType activation, Arena& arena);

  WorkspaceLimits limits_;
  Buffer buffer_;
  // Full-size views; a step uses their first rows.
  MatrixView residual_;   // [rows, hidden] f32
  MatrixView qkv_;        // [rows, (heads + 2 kv_heads) head_dim] activation
  MatrixView attention_;  // [rows, heads head_dim] activation
  MatrixView gate_up_;    // [rows, 2 ffn] activation
  MatrixView mlp_;        // [rows, ffn] activation
  MatrixView scratch_;    // [rows, hidden] f32, where the model has norms after attention and MLP
  MatrixView gathered_;   // [logit_rows, hidden] f32
  MatrixView logits_;     // [logit_rows, vocabulary] f32
  UnfusedOps::Scratch unfused_;
  Sampled* sampled_ = nullptr;
  Alternative* alternatives_ = nullptr;
};

/// One forward pass. `step` is a staged view (Backend::stage) within the workspace's limits, `kv` the cache
/// that its block_refs and slots point into, with the model's geometry.
struct ForwardArgs {
  const Model* model = nullptr;
  const StepView* step = nullptr;
  KvView kv;
  Workspace* workspace = nullptr;
};

/// Stores keys and values of every row and writes the logits of step.logit_row to workspace.logits().
/// Issues operations only: nothing is allocated and nothing is waited for.
void forward(Ops& ops, const ForwardArgs& args);

/// Samples from the logits that forward() wrote, by step.sample, into workspace.sampled() and, where
/// `with_alternatives`, workspace.alternatives().
void sample(Ops& ops, const ForwardArgs& args, bool with_alternatives);

}  // namespace quintet
