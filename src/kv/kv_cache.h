// The cache as the engine uses it: blocks to write, blocks found again, and the exchange between the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "kv/residency.h"

namespace quintet {

/// One pool, its prefix index and its residency. A block is free, held (by one or many), or idle: published,
/// held by nobody, and given up when room is needed. Allocates nothing after construction but one string a
/// new salt. One thread at a time.
class KvCache {
 public:
  KvCache(const KvTier& device, uint64_t numerics_id);

  int32_t block_tokens() const { return block_tokens_; }
  int64_t total_blocks() const { return pool_.total_blocks(); }
  /// Blocks that allocate() can still give: free and idle ones.
  int64_t available_blocks() const { return pool_.free_blocks() + index_.idle_blocks(); }

  /// A block to write, held once; kNoBlock where nothing is available. Evicts the block that was idle
  /// longest.
  BlockId allocate();
  /// Holds blocks that find() gave, before anything else is allocated.
  void hold(std::span<const BlockId> blocks);
  /// Lets go of a chain of blocks, from its end.
  void release(std::span<const BlockId> blocks);
  /// Of `blocks`, those that would be available if their holder let go.
  int64_t releasable(std::span<const BlockId> blocks) const;
  /// Of `blocks` that find() gave, those that are available now and would not be once held.
  int64_t idle_among(std::span<const BlockId> blocks) const;

  /// Publishes a full block that the caller alone holds (PrefixIndex::publish). Where the same prefix is
  /// known already, the caller's hold moves to the known block and its own is free: the two hold the same
  /// bits.
  BlockId publish(SpaceId space, BlockId parent, std::span<const TokenId> tokens, BlockId block);

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }
  const BlockPool& pool() const { return pool_; }
  const Residency& residency() const { return residency_; }

 private:
  bool idle(BlockId block) const { return index_.published(block) && pool_.references(block) == 1; }
  void release_one(BlockId block);

  int32_t block_tokens_;
  BlockPool pool_;  ///< the index holds one reference to each published block
  PrefixIndex index_;
  Residency residency_;
};

}  // namespace quintet
