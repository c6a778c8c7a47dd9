// The operations of the CPU backend: loops over packed weights with the kernels of one SIMD target.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/weight.h"
#include "backend/sampler.h"

namespace quintet::cpu {

/// Elements of a head as they lie in a page: rounded up to whole vectors.
inline int padded_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }

/// Bytes of K, or of V, of one KV head of one layer in a page. K lies in groups of 16 tokens, transposed
/// ([tokens / 16][dim][16]), V by token ([tokens][dim]), both f16: scores then need no sums across a vector.
inline int64_t head_bytes(const PageClass& page, int head_dim) {
  return int64_t{page.tokens} * padded_dim(head_dim) * 2;
}

class CpuOps final : public Ops {
 public:
  CpuOps(Pool& pool, const Kernels& kernels) : pool_(pool), kernels_(kernels) {}

  /// Sizes scratch; operations beyond the limits grow it.
  void reserve(const StepLimits& limits);
  /// What of it unfused steps take beyond the others.
  static uint64_t unfused_bytes(const StepLimits& limits);

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
  void attn_out(const StepView& step, const ProjectArgs& args) override;
  void mlp_in(const StepView& step, const MlpInArgs& args) override;
  void head(const StepView& step, const HeadArgs& args) override;

 private:
  enum class Output : uint8_t { store, add, gate };

  /// What the products of one operation do with their rows and their results.
  struct Product {
    ConstMatrixView x;  ///< [.., k]
    int64_t rows = 0;
    const int32_t* row_index = nullptr;  ///< [rows] rows of x, null: 0, 1, 2, ...
    NormArgs norm;
    const int32_t* in_perm = nullptr;
    const CpuWeight* weight = nullptr;
    const float* bias = nullptr;  ///< [n]
    Output output = Output::store;
    GateKind gate = GateKind::silu;
    MatrixView out;
    NormArgs post_norm;  ///< where set: out holds the product, residual += norm(out)
    MatrixView residual;
  };

  /// Packed activations of up to kRowsAtOnce rows.
  struct Packed {
    std::vector<int32_t> pairs;
    std::vector<float> scale, sum, sum16, values;
  };
  struct ThreadScratch {
    Panel panel;
    std::vector<float> acc;   ///< [2][rows at once][16]
    std::vector<float> work;  ///< [2][k] a row on its way into a group
    Packed packed;            ///< of the few rows that each thread packs for itself
    uint64_t packed_for = 0;  ///< which product's
    std::vector<float> q, out, scores, max, total, split_out;
    std::vector<uint16_t> half;
    std::vector<int32_t> first, last;
    std::unique_ptr<RowSampler> sampler;
  };
  /// A group of rows that the kernels take together.
  struct Group {
    int begin = 0, rows = 0;
  };
  /// Query vectors of one sequence that attend together: [begin, end) of its rows x heads of a KV group.
  struct QueryBlock {
    int32_t seq = 0, first_row = 0, begin = 0, count = 0;
    int32_t low = 0, high = 0;  ///< positions that any of them sees
  };
  /// Cosines and sines of the step's positions for one rope.
  struct RopeTable {
    int32_t dims = 0;
    float scale = 0;
    std::vector<float> inv_freq;
    std::vector<int32_t> pos;
    std::vector<float> cos, sin;  ///< [rows][dims / 2]
    uint64_t used = 0;
  };

  /// Of a row of the step, known or sampled in the step before.
  TokenId token_of(const StepView& step, int64_t row) const;
  void product(const Product& p);
  void product_rows(const Product& p, int64_t begin, int64_t rows);
  /// A product with a weight that is written out in FP16 first, a run of tiles at a time.
  void dequantized_product(const Product& p);
  /// Rows [first, first + rows) of a weight, decoded and rounded to FP16, as dense_.
  void dequantize(const CpuWeight& weight, int64_t first, int64_t rows);
  void product_tiles(const Product& p, int64_t row_begin, int64_t rows, const Packed& packed, Range range,
                     ThreadScratch& scratch);
  void size_packed(Packed& packed, const CpuWeight& weight, int64_t rows);
  void pack_rows(const Product& p, int64_t row_begin, Range range, Packed& packed, ThreadScratch& scratch);
  void tile_product(const Segment& segment, int64_t tile, int64_t k, std::span<const Group> groups,
                    int64_t rows, const Packed& packed, float* acc, ThreadScratch& scratch);
  static void add_outliers(std::span<const TileOutlier> outliers, int64_t k, std::span<const Group> groups,
                           const Packed& packed, float* acc);
  void write_tile(const Product& p, int64_t row_begin, int64_t rows, const Segment& segment, int64_t tile,
                  const float* acc);

  RopeTable& rope_table(const StepView& step, const RopeSpec& rope, bool& stale);
  void fill_rope(RopeTable& table, int64_t begin, int64_t end);
  void rotate(const RopeTable& table, const RopeSpec& rope, int64_t row, float* head) const;
  void rope_store_heads(const StepView& step, const RopeStoreArgs& args, const RopeTable& table, Range items,
                        ThreadScratch& scratch);
  void plan_queries(const StepView& step, const AttentionSpec& attention);
  void size_attention(const AttentionSpec& attention);
  void attend_blocks(const StepView& step, const AttendArgs& args);
  void attend_splits(const StepView& step, const AttendArgs& args);
  void attend_split(const StepView& step, const AttendArgs& args, const QueryBlock& block, int kv_head,
                    int split, ThreadScratch& scratch, float* max, float* total, float* out);
  void load_queries(const StepView& step, const AttendArgs& args, const QueryBlock& block, int kv_head,
                    ThreadScratch& scratch);
  void write_heads(const AttendArgs& args, const QueryBlock& block, int kv_head, const float* total,
                   const float* out);

  Pool& pool_;
  const Kernels& kernels_;
  std::vector<std::unique_ptr<ThreadScratch>> scratch_;
  Packed packed_;
  std::vector<Group> groups_;
  uint64_t products_ = 0;  ///< so far
  CpuWeight dense_;  ///< of dequantize(): one segment, whose data lie in dense_halves_
  std::vector<uint16_t> dense_halves_;
  std::vector<QueryBlock> blocks_;
  std::vector<float> partial_;  ///< [block][kv head][split][max, total, out] of attention split over threads
  int max_splits_ = 1;
  bool split_ = false;
  std::vector<RopeTable> ropes_;
  uint64_t rope_clock_ = 0;
  std::vector<TokenId> sampled_;  ///< of the last step, for rows whose token is -1
};

/// The CPU's own form of a prepared weight.
const CpuWeight& unwrap(const Weight& weight);

}  // namespace quintet::cpu
