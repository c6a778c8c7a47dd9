// RoPE, the KV cache and attention: which query vectors attend together, and how the work falls to the
// threads.
//
// A row's result is a fold over absolute splits of 256 positions in order, each a fold over absolute tiles of
// 64; the threads may take heads, blocks of queries or splits, which changes nothing about the order of the
// additions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "base/check.h"

namespace quintet::cpu {
namespace {

constexpr int kQueryLanes = 16;                        // entries for one value a query vector, whole vectors
constexpr int64_t kFewHeads = 8, kFewFolds = 32;       // done sooner than another thread hears of them
constexpr size_t kRopeTables = 4;                      // models have one or two ropes
constexpr size_t kMaxPartialFloats = size_t{4} << 20;  // 16 MiB of partial results at most

template <class T>
void grow(std::vector<T>& v, size_t size) {
  if (v.size() < size) v.resize(size);
}

const float* vector_of(const NormArgs& norm, int64_t size) {
  if (!norm.weight || norm.weight->empty()) return nullptr;
  const CpuWeight& vector = unwrap(*norm.weight);
  QUINTET_CHECK(static_cast<int64_t>(vector.vector.size()) == size, "a norm of {}, not {}",
                vector.vector.size(), size);
  return vector.vector.data();
}

/// Where K (which = 0) or V (which = 1) of one KV head begins in a page.
uint8_t* head_of(const KvView& kv, const AttentionSpec& a, int64_t page, int which, int kv_head) {
  QUINTET_CHECK(page >= 0 && page < kv.pages, "page {} of {}", page, kv.pages);
  const int64_t index = (int64_t{a.layer} * 2 + which) * a.kv_heads + kv_head;
  return static_cast<uint8_t*>(kv.base) + page * kv.page.bytes + index * head_bytes(kv.page, a.head_dim);
}

}  // namespace

// --- RoPE
// --------------------------------------------------------------------------------------------------------------

/// The table of the step's positions; `stale` says that it must be filled. Keyed by content: layers share it.
CpuOps::RopeTable& CpuOps::rope_table(const StepView& step, const RopeSpec& rope, bool& stale) {
  QUINTET_CHECK(rope.dims % 2 == 0, "rope of {} dimensions", rope.dims);
  const auto rows = static_cast<size_t>(step.rows);
  const auto half = static_cast<size_t>(rope.dims / 2);
  RopeTable* oldest = nullptr;
  ++rope_clock_;
  for (RopeTable& table : ropes_) {
    if (table.dims == rope.dims && table.scale == rope.scale && table.pos.size() == rows &&
        std::memcmp(table.pos.data(), step.pos, rows * sizeof(int32_t)) == 0 &&
        std::equal(table.inv_freq.begin(), table.inv_freq.end(), rope.inv_freq)) {
      table.used = rope_clock_;
      stale = false;
      return table;
    }
    if (!oldest || table.used < oldest->used) oldest = &table;
  }
  if (ropes_.size() < kRopeTables) {
    ropes_.reserve(kRopeTables);
    oldest = &ropes_.emplace_back();
  }
  oldest->dims = rope.dims;
  oldest->scale = rope.scale;
  oldest->used = rope_clock_;
  oldest->inv_freq.assign(rope.inv_freq, rope.inv_freq + half);
  oldest->pos.assign(step.pos, step.pos + rows);
  grow(oldest->cos, rows * half);
  grow(oldest->sin, rows * half);
  stale = true;
  return *oldest;
}

void CpuOps::fill_rope(RopeTable& table, int64_t begin, int64_t end) {
  const size_t half = static_cast<size_t>(table.dims / 2);
  for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(table.pos[row]) * table.inv_freq[i];
      table.cos[row * half + i] = std::cos(angle) * table.scale;
      table.sin[row * half + i] = std::sin(angle) * table.scale;
    }
}

void CpuOps::rotate(const RopeTable& table, const RopeSpec& rope, int64_t row, float* head) const {
  const int half = rope.dims / 2;
  const float* cos = table.cos.data() + row * half;
  const float* sin = table.sin.data() + row * half;
  if (rope.style == RopeStyle::halves) {
    for (int i = 0; i < half; ++i) {
      const float a = head[i], b = head[i + half];
      head[i] = a * cos[i] - b * sin[i];
      head[i + half] = b * cos[i] + a * sin[i];
    }
  } else {
    for (int i = 0; i < half; ++i) {
      const float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cos[i] - b * sin[i];
      head[2 * i + 1] = b * cos[i] + a * sin[i];
    }
  }
}

/// A range of (row, KV head): its query heads and its key turned in place, its key and value stored.
void CpuOps::rope_store_heads(const StepView& step, const RopeStoreArgs& args, const RopeTable& table,
                              Range items, ThreadScratch& scratch) {
  const AttentionSpec& a = args.attention;
  const int dim = a.head_dim, padded = padded_dim(dim), group = a.heads / a.kv_heads;
  const float* q_norm = vector_of(args.q_norm, dim);
  const float* k_norm = vector_of(args.k_norm, dim);
  grow(scratch.half, static_cast<size_t>(padded));
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = item / a.kv_heads;
    const int kv_head = static_cast<int>(item % a.kv_heads);
    float* qkv = args.qkv.row<float>(row);
    for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      float* q = qkv + h * dim;
      if (q_norm) kernels_.norm_row(q, dim, q_norm, args.q_norm.eps, q);
      rotate(table, a.rope, row, q);
    }
    float* k = qkv + (a.heads + kv_head) * dim;
    if (k_norm) kernels_.norm_row(k, dim, k_norm, args.k_norm.eps, k);
    rotate(table, a.rope, row, k);
    const int64_t slot = step.kv_slot[row];
    if (slot < 0) continue;
    const int64_t page = slot / args.kv.page.tokens;
    const auto token = static_cast<int>(slot % args.kv.page.tokens);
    uint16_t* half = scratch.half.data();
    kernels_.to_f16(k, dim, false, half);
    auto* keys = reinterpret_cast<uint16_t*>(head_of(args.kv, a, page, 0, kv_head)) +
                 token / 16 * padded * 16 + token % 16;
    for (int d = 0; d < dim; ++d) keys[d * 16] = half[d];
    // A value that is not a number becomes 0: its key is none either, so the rows that see it are none, and
    // rows that do not see it may multiply it by zero.
    auto* values = reinterpret_cast<uint16_t*>(head_of(args.kv, a, page, 1, kv_head)) + token * padded;
    kernels_.to_f16(qkv + (a.heads + a.kv_heads + kv_head) * dim, dim, true, values);
    std::memset(values + dim, 0, static_cast<size_t>(padded - dim) * sizeof(uint16_t));
  }
}

void CpuOps::rope_store(const StepView& step, const RopeStoreArgs& args) {
  QUINTET_CHECK(args.qkv.type == DType::f32);
  if (scratch_.empty()) reserve({});
  bool stale = false;
  RopeTable& table = rope_table(step, args.attention.rope, stale);
  if (stale) pool_.each_range(step.rows, [&](int, Range rows) { fill_rope(table, rows.begin, rows.end); });
  const int64_t items = int64_t{step.rows} * args.attention.kv_heads;
  if (items <= kFewHeads) return rope_store_heads(step, args, table, {0, items}, *scratch_[0]);
  pool_.each_range(items, [&](int thread, Range range) {
    rope_store_heads(step, args, table, range, *scratch_[static_cast<size_t>(thread)]);
  });
}

// --- attention
// -------------------------------------------------------------------------------------------------------

/// Cuts the step's rows x heads of a KV group into blocks of queries, and decides whether threads share a
/// block's splits.
void CpuOps::plan_queries(const StepView& step, const AttentionSpec& a) {
  const int group = a.heads / a.kv_heads, most = kernels_.max_queries;
  blocks_.clear();
  max_splits_ = 1;
  for (int32_t row = 0; row < step.rows;) {
    if (step.kv_slot[row] < 0) {
      ++row;
      continue;
    }
    int32_t end = row + 1;
    while (end < step.rows && step.kv_slot[end] >= 0 && step.seq[end] == step.seq[row]) ++end;
    const int32_t vectors = (end - row) * group;
    for (int32_t begin = 0; begin < vectors; begin += most) {
      const int32_t count = std::min(most, vectors - begin);
      const int32_t low = step.pos[row + begin / group], high = step.pos[row + (begin + count - 1) / group];
      blocks_.push_back({.seq = step.seq[row],
                         .first_row = row,
                         .begin = begin,
                         .count = count,
                         .low = a.sliding_window > 0 ? std::max(0, low - a.sliding_window + 1) : 0,
                         .high = high});
      max_splits_ =
          std::max(max_splits_, blocks_.back().high / kAttendSplit - blocks_.back().low / kAttendSplit + 1);
    }
    row = end;
  }
  const size_t items = blocks_.size() * static_cast<size_t>(a.kv_heads);
  const size_t floats = items * static_cast<size_t>(max_splits_) *
                        (2 * kQueryLanes + static_cast<size_t>(most * padded_dim(a.head_dim)));
  split_ = max_splits_ > 1 && pool_.threads() > 1 && items < 4 * static_cast<size_t>(pool_.threads()) &&
           floats <= kMaxPartialFloats;
  if (split_) grow(partial_, floats);
}

void CpuOps::load_queries(const StepView& step, const AttendArgs& args, const QueryBlock& block, int kv_head,
                          ThreadScratch& scratch) {
  const AttentionSpec& a = args.attention;
  const int group = a.heads / a.kv_heads, most = kernels_.max_queries;
  for (int t = 0; t < most; ++t) {
    if (t >= block.count) {
      for (int d = 0; d < a.head_dim; ++d) scratch.q[static_cast<size_t>(d * most + t)] = 0;
      scratch.first[static_cast<size_t>(t)] = 1;  // sees nothing
      scratch.last[static_cast<size_t>(t)] = 0;
      continue;
    }
    const int32_t row = block.first_row + (block.begin + t) / group;
    const int head = kv_head * group + (block.begin + t) % group;
    const float* q = args.qkv.row<float>(row) + head * a.head_dim;
    for (int d = 0; d < a.head_dim; ++d) scratch.q[static_cast<size_t>(d * most + t)] = q[d];
    const int32_t pos = step.pos[row];
    scratch.first[static_cast<size_t>(t)] =
        a.sliding_window > 0 ? std::max(0, pos - a.sliding_window + 1) : 0;
    scratch.last[static_cast<size_t>(t)] = pos;
  }
}

void CpuOps::attend_split(const StepView& step, const AttendArgs& args, const QueryBlock& block, int kv_head,
                          int split, ThreadScratch& scratch, float* max, float* total, float* out) {
  const AttentionSpec& a = args.attention;
  const int padded = padded_dim(a.head_dim);
  constexpr int kGroups = kAttendSplit / 16,
                kAhead = kAttendTile / 16;  // and the first tile of the next split
  const uint16_t* keys[kGroups + kAhead] = {};
  const uint16_t* values[kGroups + kAhead] = {};
  const int32_t begin = split * kAttendSplit, end = std::min(begin + kAttendSplit, block.high + 1);
  int groups = 0;
  for (int32_t pos = std::max(begin, block.low / 16 * 16);
       pos <= block.high && pos < begin + (kGroups + kAhead) * 16; pos += 16) {
    const BlockRef& ref = step.block_refs[int64_t{block.seq} * step.max_blocks + pos / args.kv.page.tokens];
    QUINTET_CHECK(ref.format == args.kv.page.format, "a block of format {}", ref.format);
    const int64_t in_page =
        int64_t{pos % args.kv.page.tokens} * padded;  // groups of 16: the same offset for K and V
    groups = (pos - begin) / 16 + 1;
    keys[groups - 1] = reinterpret_cast<uint16_t*>(head_of(args.kv, a, ref.page, 0, kv_head)) + in_page;
    values[groups - 1] = reinterpret_cast<uint16_t*>(head_of(args.kv, a, ref.page, 1, kv_head)) + in_page;
  }
  kernels_.attend({.vectors = block.count,
                   .head_dim = a.head_dim,
                   .padded_dim = padded,
                   .q = scratch.q.data(),
                   .first = scratch.first.data(),
                   .last = scratch.last.data(),
                   .scale = a.scale,
                   .k_groups = keys,
                   .v_groups = values,
                   .groups = groups,
                   .begin = begin,
                   .end = end,
                   .scores = scratch.scores.data(),
                   .out = out,
                   .max = max,
                   .total = total});
}

void CpuOps::write_heads(const AttendArgs& args, const QueryBlock& block, int kv_head, const float* total,
                         const float* out) {
  const AttentionSpec& a = args.attention;
  const int group = a.heads / a.kv_heads, padded = padded_dim(a.head_dim);
  for (int t = 0; t < block.count; ++t) {
    const int32_t row = block.first_row + (block.begin + t) / group;
    float* to = args.out.row<float>(row) + (kv_head * group + (block.begin + t) % group) * a.head_dim;
    for (int d = 0; d < a.head_dim; ++d) to[d] = out[t * padded + d] / total[t];
  }
}

void CpuOps::size_attention(const AttentionSpec& a) {
  const auto queries = static_cast<size_t>(kernels_.max_queries);
  const auto padded = static_cast<size_t>(padded_dim(a.head_dim));
  for (auto& scratch : scratch_) {
    grow(scratch->q, queries * padded);
    grow(scratch->out, queries * padded);
    grow(scratch->split_out, 2 * kQueryLanes + queries * padded);
    grow(scratch->scores, queries * kAttendTile);
    for (auto* v : {&scratch->max, &scratch->total}) grow(*v, kQueryLanes);
    for (auto* v : {&scratch->first, &scratch->last}) grow(*v, queries);
  }
}

/// A thread does all splits of a block of queries and one KV head.
void CpuOps::attend_blocks(const StepView& step, const AttendArgs& args) {
  const int kv_heads = args.attention.kv_heads, padded = padded_dim(args.attention.head_dim);
  pool_.each(static_cast<int64_t>(blocks_.size()) * kv_heads, [&](int thread, int64_t item) {
    ThreadScratch& scratch = *scratch_[static_cast<size_t>(thread)];
    const QueryBlock& block = blocks_[static_cast<size_t>(item / kv_heads)];
    const int kv_head = static_cast<int>(item % kv_heads);
    load_queries(step, args, block, kv_head, scratch);
    int split = block.low / kAttendSplit;
    attend_split(step, args, block, kv_head, split, scratch, scratch.max.data(), scratch.total.data(),
                 scratch.out.data());
    float* part = scratch.split_out.data();
    while (++split <= block.high / kAttendSplit) {
      attend_split(step, args, block, kv_head, split, scratch, part, part + kQueryLanes,
                   part + 2 * kQueryLanes);
      kernels_.merge(block.count, padded, part, part + kQueryLanes, part + 2 * kQueryLanes,
                     scratch.max.data(), scratch.total.data(), scratch.out.data());
    }
    write_heads(args, block, kv_head, scratch.total.data(), scratch.out.data());
  });
}

/// Threads share the splits of a block of queries; then their partial results are folded in order.
void CpuOps::attend_splits(const StepView& step, const AttendArgs& args) {
  const AttentionSpec& a = args.attention;
  const int padded = padded_dim(a.head_dim);
  const int64_t record = 2 * kQueryLanes + int64_t{kernels_.max_queries} * padded;
  const auto items = static_cast<int64_t>(blocks_.size()) * a.kv_heads;
  pool_.each(items * max_splits_, [&](int thread, int64_t i) {
    const QueryBlock& block = blocks_[static_cast<size_t>(i / max_splits_ / a.kv_heads)];
    const int kv_head = static_cast<int>(i / max_splits_ % a.kv_heads);
    const int split = block.low / kAttendSplit + static_cast<int>(i % max_splits_);
    if (split > block.high / kAttendSplit) return;
    ThreadScratch& scratch = *scratch_[static_cast<size_t>(thread)];
    float* part = partial_.data() + i * record;
    load_queries(step, args, block, kv_head, scratch);
    attend_split(step, args, block, kv_head, split, scratch, part, part + kQueryLanes,
                 part + 2 * kQueryLanes);
  });
  const auto fold = [&](int, int64_t item) {
    const QueryBlock& block = blocks_[static_cast<size_t>(item / a.kv_heads)];
    float* first = partial_.data() + item * max_splits_ * record;
    float* part = first;
    for (int split = block.low / kAttendSplit + 1; split <= block.high / kAttendSplit; ++split) {
      part += record;
      kernels_.merge(block.count, padded, part, part + kQueryLanes, part + 2 * kQueryLanes, first,
                     first + kQueryLanes, first + 2 * kQueryLanes);
    }
    write_heads(args, block, static_cast<int>(item % a.kv_heads), first + kQueryLanes,
                first + 2 * kQueryLanes);
  };
  if (items * max_splits_ > kFewFolds) return pool_.each(items, fold);
  for (int64_t item = 0; item < items; ++item) fold(0, item);
}

void CpuOps::attend(const StepView& step, const AttendArgs& args) {
  QUINTET_CHECK(args.qkv.type == DType::f32 && args.out.type == DType::f32);
  if (scratch_.empty()) reserve({});
  plan_queries(step, args.attention);
  size_attention(args.attention);
  for (int64_t row = 0; row < step.rows; ++row)  // padding has a defined result
    if (step.kv_slot[row] < 0)
      std::memset(args.out.row<float>(row), 0, static_cast<size_t>(args.out.cols) * sizeof(float));
  if (split_)
    attend_splits(step, args);
  else
    attend_blocks(step, args);
}

}  // namespace quintet::cpu
