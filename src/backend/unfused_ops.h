// The forward pass with nothing fused: a backend's fine operations, each alone, weights written out in FP16 before their products where
// the backend can. What `--unfused` times beside the coarse operations, to show what fusing them buys.
#pragma once

#include "backend/ops.h"

namespace quintet {

/// Forwards to the fine operations of `ops`; the coarse ones are the base class's. Logits are close to those of the coarse operations:
/// what these keep in registers is rounded to the activation type here, and weights to FP16.
class UnfusedOps final : public Ops {
 public:
  /// Rows on their way from one operation to the next; views of the largest step's.
  struct Scratch {
    MatrixView normed;     ///< [rows, hidden] of the activation type
    MatrixView projected;  ///< [rows, hidden] f32
  };
  UnfusedOps(Ops& ops, const Scratch& scratch) : ops_(ops), scratch_(scratch) {}

  /// Bytes, since this was made, of what fused operations need not touch: weights in FP16, written and read, and the rows that
  /// operations hand each other.
  uint64_t extra_bytes() const { return extra_bytes_; }

  void embed(const StepView& step, const EmbedArgs& args) override { ops_.embed(step, args); }
  void linear(const LinearArgs& args) override;
  void rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) override;
  void rope_store(const StepView& step, const RopeStoreArgs& args) override;
  void attend(const StepView& step, const AttendArgs& args) override;
  void gate(const GateArgs& args) override;
  void add(ConstMatrixView x, MatrixView out) override;
  void gather(const StepView& step, ConstMatrixView x, MatrixView out) override;
  void sample(const StepView& step, const SampleArgs& args) override { ops_.sample(step, args); }
  void begin_layer(int layer) override { ops_.begin_layer(layer); }
  void end_layer(int layer) override { ops_.end_layer(layer); }

 private:
  void count(const ConstMatrixView& rows, int times = 1);

  Ops& ops_;
  Scratch scratch_;
  uint64_t extra_bytes_ = 0;
};

}  // namespace quintet
