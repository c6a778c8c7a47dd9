// Which blocks hold the keys and values of which token prefixes: full blocks, found again by their tokens.
//
// A block is keyed by a hash chained over numerics id, salt and all tokens up to its end, and compared token
// by token and parent by parent, so that a collision can never hand out somebody else's keys and values. The
// entry of a block lives at the block's own number: nothing is allocated after construction but one string a
// salt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv/block_pool.h"

namespace quintet {

/// Prefixes of one salt; valid from open_space() to close_space(), and longer while blocks of it are
/// published.
using SpaceId = uint32_t;

class PrefixIndex {
 public:
  PrefixIndex(int64_t blocks, int32_t block_tokens, uint64_t numerics_id);

  SpaceId open_space(std::string_view salt);
  void close_space(SpaceId space);

  /// The published blocks that hold the longest prefix of `tokens` in whole blocks, at most blocks.capacity()
  /// of them. Replaces the contents of `blocks`.
  void find(SpaceId space, std::span<const TokenId> tokens, std::vector<BlockId>& blocks) const;

  /// Publishes `block`, whose `tokens` [block_tokens] follow the published block `parent` (kNoBlock: the
  /// beginning). Gives the block that stands for this prefix from now on: `block`, or one that was published
  /// before and holds the same.
  BlockId publish(SpaceId space, BlockId parent, std::span<const TokenId> tokens, BlockId block);

  bool published(BlockId block) const { return entries_[block].published; }

  /// A published block that nobody uses waits in order of its last use, until it is used again or evicted.
  /// Users let go of a chain from its end, so that the oldest block never has a published child.
  void set_idle(BlockId block);
  void set_used(BlockId block);
  int64_t idle_blocks() const { return idle_blocks_; }
  /// Withdraws the idle block that was used longest ago; there must be one.
  BlockId evict();

  /// Changes whenever the answer of find() may have changed.
  uint64_t version() const { return version_; }
  uint64_t evictions() const { return evictions_; }

 private:
  struct Entry {
    uint64_t key = 0;
    BlockId parent = kNoBlock;
    BlockId newer = kNoBlock, older = kNoBlock;  ///< neighbours in the idle list
    SpaceId space = 0;
    int32_t children = 0;
    bool published = false;
    bool idle = false;
  };
  struct Space {
    std::string salt;
    uint64_t key = 0;
    int64_t holders = 0;  ///< opens and published blocks
  };

  uint64_t chain(uint64_t parent_key, std::span<const TokenId> tokens) const;
  std::span<const TokenId> tokens_of(BlockId block) const;
  BlockId lookup(SpaceId space, BlockId parent, uint64_t key, std::span<const TokenId> tokens) const;
  size_t slot_of(uint64_t key) const { return static_cast<size_t>(key) & (table_.size() - 1); }
  void erase_from_table(BlockId block);
  void drop_holder(SpaceId space);

  int32_t block_tokens_;
  uint64_t numerics_id_;
  std::vector<Entry> entries_;   ///< by block
  std::vector<TokenId> tokens_;  ///< [blocks, block_tokens]
  std::vector<BlockId> table_;   ///< open addressing by key, linear probing, at most half full
  std::vector<Space> spaces_;    ///< holders 0: free to be reused
  BlockId oldest_ = kNoBlock, newest_ = kNoBlock;
  int64_t idle_blocks_ = 0;
  uint64_t version_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace quintet
