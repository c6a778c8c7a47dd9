// Parameters of the kernels: plain data that host code fills and a kernel takes by value.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/formats/pack_fault.h"
#include "backend/cuda/kernels/activation.h"
#include "backend/step_view.h"

namespace quintet::cuda {

inline constexpr int kSlices = 4;   ///< slices of K, fixed by K alone
inline constexpr int kPanel = 64;   ///< outputs of a panel of packed weights
inline constexpr int kSplit = 256;  ///< positions of a split of attention
inline constexpr int kKeyTile = 64, kAttendWarps = 4, kAttendRows = 16 * kAttendWarps;
/// Floats of a partial result of attention: a head's sums, maximum, denominator, nothing up to 32 bytes.
__host__ __device__ constexpr int partial_width(int dim) { return dim + 8; }
inline constexpr int kFreshGroup = 10;  ///< query heads of a group at most, where attention finishes q, K and V itself
inline constexpr int kRowHeads = 8;  ///< the same in a chain of one row
inline constexpr int kNormThreads = 128, kNormChunk = 1024, kNormMaxChunks = 32;
inline constexpr int kNormCluster = 8;  ///< blocks of a row at most: the largest portable cluster

/// The kernels for one row keep the row in shared memory beside their rings, and can norm it on the way in.
inline constexpr int kRowSharedBytes = 222 * 1024, kRowInputs = kRowSharedBytes / 4, kRowNormRounds = 2, kRowNormColumns = kRowNormRounds * 4 * kNormChunk;
/// What linear_row_sm80 keeps beside the row and the rings.
inline constexpr int kRowStaticBytes = 4352;

/// What a product does with its slices: leave four partial sums; add them; or also meet gate and up.
enum class Epilogue { partial, whole, gated };

/// Phases of one launch for one row at most: 22 layers.
inline constexpr int kMostPhases = 110, kMostBlocks = 256;

/// First piece of slice s where a row has `pieces`.
__host__ __device__ constexpr int slice_begin(int pieces, int s) { return pieces * s / kSlices; }
__host__ __device__ constexpr int longest_slice(int pieces) { return (pieces + kSlices - 1) / kSlices; }

/// The norm before a product of one row, done by every block of it: residual_out = residual + partial + bias, and the inputs
/// are its norm. residual_out is another buffer than residual: blocks read at different times.
struct RowNorm {
  const float* residual = nullptr;  ///< [hidden]
  float* residual_out = nullptr;    ///< [hidden] or null: another launch writes it
  const float* partial = nullptr;   ///< [slices][slice_stride] to add first, or null; one slice in a chain
  const float* bias = nullptr;      ///< [hidden] or null
  const float* weight = nullptr;    ///< [hidden]
  int64_t slice_stride = 0;
  int slices = 1, hidden = 0;
  float eps = 0;
};

/// Weights of a matrix that are kept apart as FP16.
struct OutlierSide {
  const uint32_t* begin;    ///< [n + 1], or null: none; output i has entries [begin[i], begin[i + 1])
  const uint32_t* entries;  ///< input in the lower half, FP16 value in the upper one; inputs ascending within an output
};

struct ChainProgress;

struct ProductParams {
  const uint8_t* weights;  ///< panels
  const uint4* x;          ///< activations as operand B (activation.h)
  float unit;              ///< every output is multiplied by it (formats/format.cuh)
  void* out;               ///< partial: f32 [4][rows][n]; whole: f32 [rows][n]; gated: operand B of the next product
  int n;                   ///< outputs, padded to panels
  int pieces;              ///< pieces a row
  int rows;                ///< rows that exist
  int out_stride;          ///< elements between rows of out (partial, whole)
  int64_t slice_stride;    ///< elements between the slices of out (partial)
  ActLayout out_layout;    ///< gated
  int activation;          ///< gated: 0 SiLU, 1 GELU (tanh)
  bool gated;              ///< linear_prompt: out is gated
  int stages;              ///< depth of the ring, where it is not the kernel's own
  int groups;              ///< linear_row_sm80: groups of warps that have rings; a block that norms the row may have more warps
  int arriving_lanes;      ///< see ring_release
  int tile_rows;           ///< of x, where its tiles are larger than the kernel's
  float* input_sums;       ///< room for the sums of the inputs' groups (input_sums.cuh); formats with minima, more than 16 rows
  RowNorm norm;            ///< linear_row_sm80: its inputs are the norm of this, where weight is given
  OutlierSide outliers;    ///< linear_mid, partial: what it adds as one more slice (outliers_beside.cuh)
  __half* columns;         ///< room for its inputs by columns, and
  ChainProgress* progress; ///< for how far its blocks are with them
};

/// What outliers add to a product's sums.
struct OutlierParams {
  const __half* x;        ///< operand B of the product
  ActLayout layout;
  __half* columns;        ///< room for the same number of halves: x by columns (kernels/outliers.cuh); more than one row
  OutlierSide side;
  float* out;             ///< [rows][out_stride]
  int rows, n, out_stride;
  bool add;               ///< out += instead of out =
};

/// Rows of an embedding table get what is kept apart of them, then their scale.
struct OutlierEmbedParams {
  const int* token;       ///< as EmbedParams
  const int* prev;
  const Sampled* sampled;
  OutlierSide side;       ///< an output a token
  float* out;             ///< [rows][k]
  float scale;
  int rows, k, vocabulary;
};

/// Inputs in the order of a weight's columns (act-order).
struct PermuteParams {
  const __half* x;    ///< operand B
  __half* out;        ///< the same layout
  ActLayout layout;
  const int* in_perm; ///< [k]: column i is input in_perm[i]
  int rows, k;
};

struct InputSumParams {
  const __half* x;    ///< operand B, whole row tiles of it written
  float* out;         ///< [row tiles][groups][rows of a tile]
  ActLayout layout;
  int rows;           ///< whole tiles
};

/// How rows of a part lie in pieces of 16: `rows` of them a piece, 16, or 8 where gate and up share pieces; they are the piece's
/// rows from `first` on.
struct PieceRows {
  int rows = 16, first = 0;

  __host__ __device__ int piece(int row) const { return row / rows; }
  __host__ __device__ int local(int row) const { return row % rows + first; }
};

struct PackParams {
  const uint8_t* file;  ///< [n][k / kFileBlockK] blocks
  const float* row_scales;  ///< [n], of formats whose rows have scales
  const uint8_t* grid;  ///< of IQ2 and IQ3
  uint8_t* panels;      ///< zeroed
  int n, k, pieces;     ///< n: rows of this part
  PieceRows place;
  int first_piece;      ///< of the panels: row 0 lies in it
  float unit;
  PackFault* fault;     ///< the worst that was met
};

struct UnpackParams {
  const uint8_t* panels;
  float* out;  ///< [count][k]
  int first, count, k, pieces, first_piece;
  PieceRows place;
  float unit;
};

/// Panels written out as panels of FP16 (expand.cuh).
struct ExpandParams {
  const uint8_t* panels;
  uint8_t* out;
  int outputs, pieces;  ///< a multiple of kPanel; pieces a row
};

struct EmbedParams {
  const uint8_t* panels;
  const int* token;  ///< [rows], -1: sampled[prev[row]]
  const int* prev;
  const Sampled* sampled;
  float* out;        ///< [rows][k]
  float scale, unit;
  int rows, k, pieces, vocabulary;
};

struct GateParams {
  const float* partial;  ///< [4][rows][stride]
  __half* out;           ///< operand B
  ActLayout layout;
  int64_t slice_stride;
  int rows, n, stride, slices, activation;
};

struct DeviceSampleParams {
  float* logits;  ///< [rows][stride]
  const SampleParams* params;
  const int* history;
  const int* bias_token;
  const float* bias_value;
  const uint32_t* mask;
  Sampled* out;
  int rows, vocabulary, stride;
};

/// A row-major matrix of FP32 or FP16, `stride` elements between rows.
struct PlainMatrix {
  void* data;
  int64_t stride;
  bool is_half;
};

struct PackRowsParams {
  PlainMatrix x;
  __half* out;  ///< operand B
  ActLayout layout;
  int rows, columns;
};

struct ReduceParams {
  const float* partial;  ///< [4][rows][stride]
  const float* bias;     ///< [columns] or null
  PieceRows place;       ///< where the columns lie among the padded outputs, from `partial` on
  PlainMatrix out;
  int64_t slice_stride;
  int rows, columns, stride, slices;
  bool add;
};

struct NormPlainParams {
  PlainMatrix x, out;
  const float* weight;
  float eps;
  int rows, columns;
};

enum class ElementOp { gate, add, gather };

struct ElementParams {
  PlainMatrix x, out;
  const int* row_index;  ///< gather
  int rows, columns, activation;
};

struct NormParams {
  float* residual;           ///< [rows, hidden]
  const float* partial;      ///< [4][rows][partial_stride] to add first, or null
  const float* partial_bias; ///< [hidden] or null
  const float* post_weight;  ///< norm of the partial sums before they are added (Gemma), or null
  const float* weight;       ///< [hidden]; null: no norm, only the addition
  const int* row_index;      ///< rows to read (logit rows), or null: row i reads row i; then nothing is added
  __half* out;               ///< operand B
  ActLayout layout;
  float eps, post_eps;
  int rows, hidden, partial_stride, slices;
};

struct RopeStoreParams {
  const float* partial;       ///< [4][rows][stride], or null: qkv holds the rows
  __half* qkv;                ///< [rows][stride] or null; q and k are turned in place
  const float* bias;          ///< [(heads + 2 kv_heads) dim] or null
  const float* q_norm;        ///< [dim] or null
  const float* k_norm;
  const float* inv_freq;      ///< [rope_dims / 2]
  const int* pos;             ///< [rows]
  const int64_t* kv_slot;     ///< [rows], -1: not stored
  __half* q;                  ///< [rows][heads][dim] where partial is given
  uint8_t* pages;
  int64_t page_bytes;
  float eps, rope_scale;
  int rows, stride, slices, heads, kv_heads, dim, rope_dims, pairs_style, page_tokens, layer;
};

struct AttendParams {
  const __half* q;          ///< [rows][q_stride], heads of dim
  int64_t q_stride;
  const uint8_t* pages;
  const BlockRef* block_refs;
  const int* row_begin;     ///< [seqs + 1]
  const int* context;       ///< [seqs]
  const int* pos;           ///< [rows]
  float* partial;           ///< [rows][splits][heads][partial_width(dim)], or null: one pass
  int* merge_from;          ///< [rows][kv_heads] first of the partial results that attend_merge finds, -1: none; null: all; a launcher that leaves all clears it
  __half* out;              ///< operand B of the projection
  ActLayout layout;
  int64_t page_bytes;
  float scale_log2;         ///< scale of q . k times log2(e)
  int heads, kv_heads, page_tokens, layer, max_blocks, window, splits;
  int seqs, arriving_lanes;  ///< arriving_lanes: see ring_release
  int block_splits;         ///< splits that one block takes, where partial is given
  bool fresh;               ///< one row a sequence, whose q, K and V still are partial sums: `turn` says how to finish them
  RopeStoreParams turn;
};

/// One operation of a chain on one row (row_chain_sm90.cuh, row_chain_sm80.cuh): a product, or the attention of one layer over one split.
enum class PhaseKind { whole, gated, attend, partial };
struct alignas(16) ChainPhase {
  PhaseKind kind;
  int n, pieces;           ///< outputs, padded to panels; pieces a row
  int16_t activation;      ///< gated: 0 SiLU, 1 GELU (tanh)
  uint8_t first_group;     ///< row_chain_sm80: the group of warps that takes the first units
  bool early;              ///< gated: the other blocks are told of most panels before the last ones (RowShare, ChainUnits); a product: its inputs are what the phase before tells so
  int window;              ///< attend
  int blocks;              ///< row_chain_sm80: that a product's outputs are dealt out to
  int row_at;              ///< where a product's inputs lie in shared memory: one that begins early does while the phase before reads its own
  float unit;              ///< every output of a product is multiplied by it
  const uint8_t* weights;  ///< panels
  const uint4* x;          ///< inputs as operand B of one row, unless they are a norm
  void* out;               ///< partial: f32 [kSlices, and one more of what outliers add][n]; whole: f32 [n]; gated: operand B of the next product
  RowNorm norm;            ///< the inputs are the norm of this, where weight is given
  union {
    RopeStoreParams turn;  ///< attend
    OutlierSide outliers;  ///< of a product
  };
};

/// How far the blocks of a chain are, or those of a product with its outliers; all zero between launches.
struct ChainProgress {
  uint32_t arrived;  ///< blocks that have finished phases, summed up
  uint32_t early;    ///< blocks that have finished a phase's early panels, summed up
  uint32_t left;     ///< blocks that have ended
  uint32_t shared[kMostBlocks];  ///< 1 + the last phase in which block b handed over its part of a shared panel
};

struct ChainParams {
  AttendParams attend;       ///< of every attention of the chain, less layer and window; turn: that of the first
  ChainProgress* progress;
  float* shared_sums;        ///< [panels][kSlices][kPanel]: slices of panels that two blocks share
  int arriving_lanes;        ///< see ring_release
  uint32_t grid_inverse;     ///< 2^32 over the blocks of the grid, rounded up; 0: one block
  uint32_t others_inverse;   ///< the same of the blocks that do not attend
  int phases, dim;           ///< dim: head size of the attentions; 0: there are none
  int stages, scratch_bytes; ///< of shared memory: the ring, and what lies before it: rows or what attention needs, then RowContext
  ChainPhase phase[kMostPhases];
};
static_assert(sizeof(ChainParams) <= 32764, "parameters of a kernel");

}  // namespace quintet::cuda
