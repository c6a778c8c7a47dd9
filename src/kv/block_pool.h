// Fixed pages of the KV cache by number: reference counts and a free list. Knows nothing of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quintet {

/// A page of the pool.
using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = 0xFFFFFFFFu;

/// How the free pages lie: long runs are what a device can hand back in one piece.
struct BlockPoolFigures {
  int64_t total_blocks = 0;
  int64_t free_blocks = 0;
  int64_t touched_blocks = 0;  ///< handed out at least once: memory that really exists
  int64_t free_runs = 0;       ///< maximal runs of neighbouring free blocks
  int64_t longest_free_run_blocks = 0;
};

/// Allocates nothing after construction. One thread at a time.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);

  /// A free block with one reference, or kNoBlock. Blocks that were used before come first, so that a lazily
  /// backed pool touches no more memory than it needs.
  BlockId take();
  void add_reference(BlockId block);
  /// True where that was the last reference: the block is free again.
  bool drop_reference(BlockId block);

  int32_t references(BlockId block) const { return references_[block]; }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t total_blocks() const { return static_cast<int64_t>(references_.size()); }
  /// Walks the whole pool.
  BlockPoolFigures figures() const;

 private:
  std::vector<int32_t> references_;  ///< by block; 0: free
  std::vector<BlockId> free_;        ///< a stack
  int64_t touched_blocks_ = 0;
};

}  // namespace quintet
