// The free list and the counts.
#include "kv/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace quintet {

BlockPool::BlockPool(int64_t blocks) {
  QUINTET_CHECK(blocks > 0 && blocks < int64_t{kNoBlock}, "a pool of {} blocks", blocks);
  references_.resize(static_cast<size_t>(blocks));
  free_.reserve(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) free_.push_back(static_cast<BlockId>(block));
}

BlockId BlockPool::take() {
  if (free_.empty()) return kNoBlock;
  const BlockId block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  touched_blocks_ = std::max(touched_blocks_, int64_t{block} + 1);
  return block;
}

void BlockPool::add_reference(BlockId block) {
  QUINTET_CHECK(references_[block] > 0, "block {} is free", block);
  ++references_[block];
}

bool BlockPool::drop_reference(BlockId block) {
  QUINTET_CHECK(references_[block] > 0, "block {} is already free", block);
  if (--references_[block] > 0) return false;
  free_.push_back(block);
  return true;
}

BlockPoolFigures BlockPool::figures() const {
  BlockPoolFigures figures{
      .total_blocks = total_blocks(), .free_blocks = free_blocks(), .touched_blocks = touched_blocks_};
  int64_t run = 0;
  for (int32_t count : references_) {
    if (count > 0) {
      run = 0;
      continue;
    }
    if (++run == 1) ++figures.free_runs;
    figures.longest_free_run_blocks = std::max(figures.longest_free_run_blocks, run);
  }
  return figures;
}

}  // namespace quintet
