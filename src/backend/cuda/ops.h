// The forward pass's operations on one GPU: checks shapes, chooses kernels, launches. Coarse operations only; activations
// travel between them in private buffers, in the layouts that the kernels want.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/weights.h"

namespace quintet::cuda {

class CudaOps : public Ops {
 public:
  CudaOps(LaunchSite site, const bool& prompt_layout) : site_(site), prompt_layout_(prompt_layout) {}

  Status reserve(const StepLimits& limits, Arena& arena);
  /// Host copies of what launches are sized from. Called by Backend::stage before the step's operations.
  void begin_step(const StepView& host);
  /// The first launch error since the last call.
  cudaError_t take_error();

  void embed(const StepView& step, const EmbedArgs& args) override;
  void linear(const LinearArgs& args) override;
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
    const float* bias = nullptr;
    const float* post_weight = nullptr;
    float post_eps = 0;
    int stride = 0;
  };

  void check(cudaError_t code) { if (error_ == cudaSuccess) error_ = code; }
  void norm(ConstMatrixView x, const NormArgs& norm, int rows, const int* row_index, const Weight& next);
  /// Leaves slices(rows) sums of every output in `partial` [slices][rows][columns].
  void product(const Weight& weight, const __half* x, int rows, float* partial);
  void project(const ProjectArgs& args);
  void attend_rows(const StepView& step, const AttentionSpec& attention, const KvView& kv, AttendParams params);
  ActLayout layout(const Weight& weight, int rows) const;

  int tiles(int rows) const { return tiles_for_rows(rows, prompt_layout_); }
  /// Slices that a product of `rows` rows leaves for the next kernel to add.
  int slices(int rows) const { return tiles(rows) == kPromptTiles ? 1 : kSlices; }

  LaunchSite site_;
  const bool& prompt_layout_;
  cudaError_t error_ = cudaSuccess;
  int rows_ = 0, query_tokens_ = 0, context_ = 0;  ///< of the step being issued
  Pending pending_;
  int partial_stride_ = 0;             ///< of the qkv product's partial sums
  const float* qkv_bias_ = nullptr;
  // Private buffers, sized by reserve().
  __half* act_in_ = nullptr;    ///< operand B of the products that read the residual stream
  __half* act_mid_ = nullptr;   ///< operand B of the projections (attention output, gated MLP)
  __half* q_ = nullptr;         ///< [rows][heads][dim]
  float* partial_ = nullptr;    ///< [4][rows][columns]
  float* residual_partial_ = nullptr;  ///< the same, of projections
  float* attend_partial_ = nullptr;
  float* logits_ = nullptr;  ///< [logit_rows][padded vocabulary]
  int attend_splits_ = 0, attend_rows_ = 0;
  const Sampled* last_sampled_ = nullptr;
  StepLimits limits_;
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
