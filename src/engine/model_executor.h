// Steps through the real model: stage, forward, sample, finish.
#pragma once

#include <array>
#include <optional>

#include "engine/executor.h"
#include "model/decoder.h"

namespace quintet {

/// Owns the pages and the workspace; backend and model must outlive it.
class ModelExecutor : public Executor {
 public:
  struct Options {
    WorkspaceLimits limits;
    PageClass page;
    int64_t pages = 0;
  };
  static Result<ModelExecutor> make(Backend& backend, const Model& model, const Options& options);

  /// Makes the steps ready that the backend replays (Backend::prepare_steps). Once, before the first launch.
  Status prepare();

  /// Whether the steps launched from now on go through UnfusedOps, operation by operation; the limits must say so.
  void set_unfused(bool unfused);
  /// UnfusedOps::extra_bytes of all steps.
  uint64_t unfused_extra_bytes() const { return unfused_ops_ ? unfused_ops_->extra_bytes() : 0; }

  Result<Buffer> allocate_staging(size_t bytes) override;
  Status launch(const StepInputs& inputs) override;
  Status wait(std::span<Sampled> sampled, std::span<Alternative> alternatives) override;

  const KvView& kv() const { return kv_; }

  /// The forward pass alone: the logits of inputs.view.logit_row, in host memory, into `logits` [logit_rows,
  /// vocabulary].
  Status logits(const StepInputs& inputs, std::span<float> logits);

 private:
  /// A launched step's results on the host.
  struct Turn {
    Buffer sampled;  // [logit_rows]
    bool wants_alternatives = false;
  };
  ModelExecutor(Backend& backend, const Model& model, Workspace workspace, Buffer pages,
                std::array<Turn, 2> turns, const Options& options);
  ForwardArgs forward_args(const StepView& step);
  Ops& ops() { return unfused_ ? static_cast<Ops&>(*unfused_ops_) : backend_->ops(); }
  void issue(const StepView& step);

  Backend* backend_;
  const Model* model_;
  Workspace workspace_;
  Buffer pages_;
  KvView kv_;
  std::array<Turn, 2> turns_;
  std::optional<UnfusedOps> unfused_ops_;
  bool unfused_ = false;
  uint64_t launched_ = 0, waited_ = 0;  ///< steps; turn n % 2 is that of the n-th
};

}  // namespace quintet
