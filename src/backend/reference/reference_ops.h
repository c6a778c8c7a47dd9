// The fine operations of the reference backend.
#pragma once

#include <memory>

#include "backend/ops.h"
#include "backend/sampler.h"

namespace quintet::reference {

/// Activations are read and written as f32, f16 or bf16; every sum is a double, in ascending order of its
/// index.
class ReferenceOps final : public Ops {
 public:
  /// `kv`: what keys and values are rounded to (f32, f16 or bf16); the cache holds f32 in any case.
  explicit ReferenceOps(DType kv = DType::f32) : kv_(kv) {}

  void embed(const StepView& step, const EmbedArgs& args) override;
  void linear(const LinearArgs& args) override;
  void rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) override;
  void rope_store(const StepView& step, const RopeStoreArgs& args) override;
  void attend(const StepView& step, const AttendArgs& args) override;
  void gate(const GateArgs& args) override;
  void add(ConstMatrixView x, MatrixView out) override;
  void gather(const StepView& step, ConstMatrixView x, MatrixView out) override;
  void sample(const StepView& step, const SampleArgs& args) override;

 private:
  /// Of a row of the step, known or sampled in the step before.
  TokenId token_of(const StepView& step, int32_t row) const;

  DType kv_;
  std::unique_ptr<RowSampler> sampler_;  // of the vocabulary that was last sampled from
  int64_t sampler_vocabulary_ = 0;
  const Sampled* sampled_ = nullptr;  // the previous step's tokens, for rows whose token is -1
};

}  // namespace quintet::reference
