// What a forward pass is told: rows of tokens, flattened over all sequences, and where their keys and values go.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace quintet {

/// A block of a sequence's KV cache: `page` of the pool, the format it is stored in, and the tier that holds it.
struct BlockRef {
  uint32_t page = 0;
  uint8_t format = 0;  ///< index of a PageClass; 0 is the backend's full-precision class
  uint8_t place = 0;   ///< 0: memory of the device
  uint16_t unused = 0;
};
static_assert(sizeof(BlockRef) == 8);

/// Layout of a page: [layer][K|V][head][token][dim], so that a block of all layers is one copy. Within a head a backend
/// may order tokens and dimensions as its kernels want (cpu/ does).
struct PageClass {
  uint8_t format = 0;
  int32_t tokens = 16;        ///< tokens in a page
  int64_t bytes = 0;          ///< bytes of a page, a multiple of 256
  int64_t scale_offset = 0;   ///< where a compressed format keeps its scales, from the page's start
};

/// How one row's logits become a token. Plain data, the same on every backend.
struct SampleParams {
  float temperature = 0;      ///< 0: greedy
  int32_t top_k = 0;          ///< 0: all
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1;   ///< divides positive, multiplies negative logits of tokens in the history
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t logprobs = 0;       ///< how many alternatives to report, 0 to 20
  uint64_t seed = 0;          ///< with the position, the whole state of the noise: Philox(seed, position)
  int64_t position = 0;       ///< position in the sequence of the token to be sampled
  int32_t history_begin = 0;  ///< StepView::history[history_begin, history_end): tokens that penalties count
  int32_t history_end = 0;
  int32_t bias_begin = 0;     ///< StepView::bias_token/bias_value range of a logit bias
  int32_t bias_end = 0;
  int32_t mask_row = -1;      ///< row of StepView::mask, -1: every token is allowed

  bool counts_history() const { return repeat_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

/// What sampling a row gave.
struct Sampled {
  TokenId token = 0;
  float logprob = 0;     ///< natural log of the token's probability before temperature and cuts
  uint32_t status = 0;   ///< 0, or kSampleNotFinite
};
inline constexpr uint32_t kSampleNotFinite = 1;  ///< NaN or +Inf among the row's logits: this request alone fails

/// A token that was among the most likely ones.
struct Alternative { TokenId token; float logprob; };

/// One step. Rows of one sequence are contiguous and ascending in position: a decode token, several drafted ones, or a
/// chunk of a prompt. All pointers are to memory that the backend reads (Backend::stage made it so).
struct StepView {
  int32_t rows = 0;        ///< rows, padding included
  int32_t seqs = 0;
  int32_t logit_rows = 0;  ///< rows whose logits are wanted
  int32_t max_blocks = 0;  ///< stride of block_refs

  const TokenId* token = nullptr;        ///< [rows]; -1: the token sampled in the previous step at prev[row]
  const int32_t* prev = nullptr;         ///< [rows] logit row of the previous step, where token is -1
  const int32_t* pos = nullptr;          ///< [rows] position in the row's sequence
  const int32_t* seq = nullptr;          ///< [rows] sequence index of the step
  const int64_t* kv_slot = nullptr;      ///< [rows] page * tokens a page + offset; -1: padding, never stored
  const int32_t* row_begin = nullptr;    ///< [seqs + 1] first row of each sequence
  const int32_t* context = nullptr;      ///< [seqs] tokens of the sequence in the cache once this step's rows are stored
  const BlockRef* block_refs = nullptr;  ///< [seqs, max_blocks]
  const int32_t* logit_row = nullptr;    ///< [logit_rows] row of the step
  const SampleParams* sample = nullptr;  ///< [logit_rows]
  const TokenId* history = nullptr;      ///< -1: the row's own token, where that was sampled in the previous step
  const TokenId* bias_token = nullptr;
  const float* bias_value = nullptr;
  const uint32_t* mask = nullptr;        ///< [mask rows, (vocabulary + 31) / 32] bits, 1: allowed
  uint64_t mask_epoch = 0;               ///< changes when the mask does
  uint64_t step_id = 0;
};

}  // namespace quintet
