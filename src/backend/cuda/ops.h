// The forward pass's operations on one GPU: checks shapes, chooses kernels, launches. Coarse operations only; activations
// travel between them in private buffers, in the layouts that the kernels want.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/row_chain.h"
#include "backend/cuda/weights.h"
#include "backend/kernel_table.h"

namespace quintet::cuda {

class CudaOps : public Ops {
 public:
  /// `table` chooses among kernels that give the same bits.
  CudaOps(const Kernels& kernels, LaunchSite site, const KernelTable& table) : kernels_(kernels), site_(site), table_(table) {}

  /// See Backend::scratch_bytes.
  Result<uint64_t> scratch_bytes(const StepLimits& limits) const;
  Status reserve(const StepLimits& limits, Arena& arena);
  /// Before what reserve() took is freed.
  void forget_scratch() { rope_tables_.clear(); }
  /// Host copies of what launches are sized and chosen from: rows, seqs, logit_rows, row_begin, context and logit_row (null where
  /// logit row i is row i). Called by Backend::stage before the step's operations.
  void begin_step(const StepView& host);
  /// Launches what still waits: operations on one row are gathered. At the end of a step, before its stream is waited for.
  void flush();
  /// The first launch error since the last call, flushed.
  cudaError_t take_error();

  void embed(const StepView& step, const EmbedArgs& args) override;
  void linear(const LinearArgs& args) override;
  uint64_t dequantized_bytes(const Weight& weight) const override;
  void rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) override;
  void rope_store(const StepView& step, const RopeStoreArgs& args) override;
  void attend(const StepView& step, const AttendArgs& args) override;
  void gate(const GateArgs& args) override;
  void add(ConstMatrixView x, MatrixView out) override;
  void gather(const StepView& step, ConstMatrixView x, MatrixView out) override;
  void sample(const StepView& step, const SampleArgs& args) override;

  void attn_in(const StepView& step, const AttnInArgs& args) override;
  void rope_store_attend(const StepView& step, const RopeStoreAttendArgs& args) override;
  void attn_out(const StepView& step, const ProjectArgs& args) override;
  void mlp_in(const StepView& step, const MlpInArgs& args) override;
  void mlp_out(const StepView& step, const ProjectArgs& args) override;
  void head(const StepView& step, const HeadArgs& args) override;

 private:
  /// Partial sums of a projection that the next norm adds to the residual stream.
  struct Pending {
    bool waiting = false;
    int slices = 1;
    const float* bias = nullptr;
    const float* post_weight = nullptr;
    float post_eps = 0;
    int stride = 0;
  };

  /// Calls visit(pointer, elements) for every private buffer of `self`.
  template <class Self, class Visit>
  static void visit_buffers(Self& self, const StepLimits& limits, Visit&& visit);

  /// Where to launch what does not join the chain: after it.
  const LaunchSite& next_site();
  void check(cudaError_t code) { if (error_ == cudaSuccess) error_ = code; }
  /// The norm of x's rows (plus what is pending) as the inputs of `next`, by a kernel of its own.
  void norm(ConstMatrixView x, const NormArgs& norm, int rows, const int* row_index, const Weight& next);
  /// The same as work of the product of one row itself, if its kernel can; x is the residual stream.
  bool row_norm(ConstMatrixView x, const NormArgs& norm, RowNorm& fused);
  /// Leaves slices() sums of every output at `out`, or, gated, the inputs of the product after. `fused`: see row_norm.
  void product(const Weight& weight, const __half* x, int rows, void* out, Epilogue epilogue, const RowNorm& fused = {}, ActLayout out_layout = {}, int activation = 0);
  /// One launch of a product, of a segment or of outputs written out in FP16; `params` has its inputs.
  void multiply(const Segment& segment, ProductParams& params, const OutlierSide& outliers, Epilogue epilogue, void* out);
  /// Outputs of a segment from `first` on, as many as dense_ has room for, written there: a segment of FP16.
  Segment dequantize(const Segment& segment, int first);
  /// What the weights kept apart add to a product of x: its last slice, or, of whole sums, into them.
  void add_outliers(const Weight& weight, const __half* x, int rows, float* out, Epilogue epilogue);
  /// Of the two buffers of inputs, the one where x does not lie; free while the product of x is issued.
  __half* other_inputs(const __half* x) const { return x == act_in_ ? act_mid_ : act_in_; }
  /// norm of x, then a product: one kernel where that can be.
  void norm_product(ConstMatrixView x, const NormArgs& norm_args, const Weight& weight, int rows, void* out, Epilogue epilogue, ActLayout out_layout = {}, int activation = 0);
  void project(const ProjectArgs& args);
  void attend_rows(const StepView& step, const AttentionSpec& attention, const KvView& kv, AttendParams params);
  ActLayout layout(const Weight& weight, int rows) const { return {.tiles = tiles(rows), .k_padded = padded_inputs(static_cast<int>(weight.k))}; }
  /// The tiles by which products of `rows` rows go (ActLayout::tiles).
  int tiles(int rows) const;

  /// What a product leaves: of one row or by the tiles of prompts, whole sums; else the slices, which the next kernel adds.
  Epilogue epilogue(int rows) const { return rows == 1 || tiles(rows) == kPromptRows ? Epilogue::whole : Epilogue::partial; }
  /// What outliers add is one more slice behind them.
  static int slices(const Weight& weight, Epilogue left);
  /// The residual stream of a step lies where embed() put it, or in a buffer of ours once a product of one row has added to it.
  float* residual(ConstMatrixView x) { return moved_residual_ ? moved_residual_ : static_cast<float*>(const_cast<void*>(x.data)); }

  const Kernels& kernels_;
  LaunchSite site_;
  KernelTable table_;
  cudaError_t error_ = cudaSuccess;
  int rows_ = 0, query_tokens_ = 0, context_ = 0;  ///< of the step being issued
  Pending pending_;
  RowChain chain_;
  int partial_stride_ = 0, partial_slices_ = 1;  ///< of the qkv product's partial sums
  const float* qkv_bias_ = nullptr;
  // Private buffers, sized by reserve().
  __half* act_in_ = nullptr;    ///< operand B of the products that read the residual stream
  __half* act_mid_ = nullptr;   ///< operand B of the projections (attention output, gated MLP)
  __half* q_ = nullptr;         ///< [rows][heads][dim]
  float* partial_ = nullptr;    ///< [4][rows][columns]
  float* residual_partial_ = nullptr;  ///< the same, of projections
  float* attend_partial_ = nullptr;
  int* merge_from_ = nullptr;  // [rows, kv heads]
  float* input_sums_ = nullptr;  ///< of formats with minima (kernels/input_sums.cuh)
  float* other_residual_[2] = {};  ///< [hidden] each, taken in turn
  float* shared_sums_ = nullptr;       ///< see ChainParams
  ChainProgress* progress_ = nullptr;
  uint8_t* dense_ = nullptr;  ///< [dense_bytes_], of StepLimits::unfused: a weight's outputs in FP16
  size_t dense_bytes_ = 0;
  bool dequantizing_ = false;  ///< the product being issued reads dense_
  float* moved_residual_ = nullptr;  ///< null: where embed() put it
  bool all_logits_ = false;  ///< of the step being issued: logit row i is row i
  float* logits_ = nullptr;  ///< [logit_rows][padded vocabulary]
  int* own_tokens_ = nullptr;  ///< [logit_rows], of the sampler's penalties
  int* counts_ = nullptr;    ///< [logit_rows][vocabulary], of the sampler's penalties
  int attend_splits_ = 0, attend_rows_ = 0;
  const Sampled* last_sampled_ = nullptr;
  /// Frequencies of one kind of layer, found by their values.
  struct RopeTable {
    std::vector<float> host;
    float* device;
  };
  std::vector<RopeTable> rope_tables_;
  Arena* arena_ = nullptr;
  const float* device_inv_freq(const RopeSpec& rope);
};

}  // namespace quintet::cuda
