// The hash table of published blocks and the order in which idle ones are given up.
#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quintet {
namespace {

/// One step of a 64-bit hash: xor, multiply by an odd constant (2^64 / golden ratio), fold the high bits
/// down.
uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

}  // namespace

PrefixIndex::PrefixIndex(int64_t blocks, int32_t block_tokens, uint64_t numerics_id)
    : block_tokens_(block_tokens), numerics_id_(numerics_id) {
  QUINTET_CHECK(blocks > 0 && block_tokens > 0, "{} blocks of {} tokens", blocks, block_tokens);
  entries_.resize(static_cast<size_t>(blocks));
  tokens_.resize(static_cast<size_t>(blocks) * static_cast<size_t>(block_tokens));
  table_.assign(std::bit_ceil(static_cast<size_t>(blocks) * 2), kNoBlock);
}

SpaceId PrefixIndex::open_space(std::string_view salt) {
  size_t vacant = spaces_.size();
  for (size_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].holders == 0) {
      vacant = i;
    } else if (spaces_[i].salt == salt) {
      ++spaces_[i].holders;
      return static_cast<SpaceId>(i);
    }
  }
  uint64_t key = mix(numerics_id_, salt.size());
  for (char c : salt) key = mix(key, static_cast<unsigned char>(c));
  if (vacant == spaces_.size()) spaces_.emplace_back();
  spaces_[vacant] = {.salt = std::string(salt), .key = key, .holders = 1};
  return static_cast<SpaceId>(vacant);
}

void PrefixIndex::close_space(SpaceId space) { drop_holder(space); }

void PrefixIndex::drop_holder(SpaceId space) {
  QUINTET_CHECK(spaces_[space].holders > 0, "space {} is closed", space);
  --spaces_[space].holders;
}

uint64_t PrefixIndex::chain(uint64_t parent_key, std::span<const TokenId> tokens) const {
  uint64_t key = mix(parent_key, 0x71);  // a block is not its parent with nothing added
  for (TokenId token : tokens) key = mix(key, static_cast<uint32_t>(token));
  return key;
}

std::span<const TokenId> PrefixIndex::tokens_of(BlockId block) const {
  return {tokens_.data() + static_cast<size_t>(block) * static_cast<size_t>(block_tokens_),
          static_cast<size_t>(block_tokens_)};
}

BlockId PrefixIndex::lookup(SpaceId space, BlockId parent, uint64_t key,
                            std::span<const TokenId> tokens) const {
  for (size_t slot = slot_of(key); table_[slot] != kNoBlock; slot = (slot + 1) & (table_.size() - 1)) {
    const BlockId block = table_[slot];
    const Entry& entry = entries_[block];
    if (entry.key == key && entry.space == space && entry.parent == parent &&
        std::ranges::equal(tokens_of(block), tokens))
      return block;
  }
  return kNoBlock;
}

void PrefixIndex::find(SpaceId space, std::span<const TokenId> tokens, std::vector<BlockId>& blocks) const {
  blocks.clear();
  uint64_t key = spaces_[space].key;
  BlockId parent = kNoBlock;
  const size_t block_tokens = static_cast<size_t>(block_tokens_);
  for (size_t begin = 0; begin + block_tokens <= tokens.size() && blocks.size() < blocks.capacity();
       begin += block_tokens) {
    const auto part = tokens.subspan(begin, block_tokens);
    key = chain(key, part);
    parent = lookup(space, parent, key, part);
    if (parent == kNoBlock) return;
    blocks.push_back(parent);
  }
}

BlockId PrefixIndex::publish(SpaceId space, BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  QUINTET_CHECK(tokens.size() == static_cast<size_t>(block_tokens_), "{} tokens in a block of {}",
                tokens.size(), block_tokens_);
  QUINTET_CHECK(!entries_[block].published, "block {} is published already", block);
  QUINTET_CHECK(parent == kNoBlock || (entries_[parent].published && entries_[parent].space == space),
                "the parent {} of block {} is not published in its space", parent, block);
  const uint64_t key = chain(parent == kNoBlock ? spaces_[space].key : entries_[parent].key, tokens);
  if (const BlockId known = lookup(space, parent, key, tokens); known != kNoBlock) return known;

  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(block) * block_tokens_);
  entries_[block] = {.key = key, .parent = parent, .space = space, .published = true};
  if (parent != kNoBlock) ++entries_[parent].children;
  ++spaces_[space].holders;
  size_t slot = slot_of(key);
  while (table_[slot] != kNoBlock) slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = block;
  ++version_;
  return block;
}

void PrefixIndex::set_idle(BlockId block) {
  Entry& entry = entries_[block];
  QUINTET_CHECK(entry.published && !entry.idle, "block {} cannot become idle", block);
  entry.idle = true;
  entry.older = newest_;
  entry.newer = kNoBlock;
  (newest_ == kNoBlock ? oldest_ : entries_[newest_].newer) = block;
  newest_ = block;
  ++idle_blocks_;
}

void PrefixIndex::set_used(BlockId block) {
  Entry& entry = entries_[block];
  QUINTET_CHECK(entry.idle, "block {} is not idle", block);
  entry.idle = false;
  (entry.older == kNoBlock ? oldest_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNoBlock ? newest_ : entries_[entry.newer].older) = entry.older;
  --idle_blocks_;
}

BlockId PrefixIndex::evict() {
  const BlockId block = oldest_;
  QUINTET_CHECK(block != kNoBlock, "nothing to evict");
  QUINTET_CHECK(entries_[block].children == 0, "block {} is older than its {} children", block,
                entries_[block].children);
  set_used(block);
  erase_from_table(block);
  Entry& entry = entries_[block];
  if (entry.parent != kNoBlock) --entries_[entry.parent].children;
  drop_holder(entry.space);
  entry = {};
  ++version_;
  ++evictions_;
  return block;
}

void PrefixIndex::erase_from_table(BlockId block) {
  const size_t mask = table_.size() - 1;
  size_t hole = slot_of(entries_[block].key);
  while (table_[hole] != block) hole = (hole + 1) & mask;
  // Backward shift: whatever probed past the hole moves into it, so that no tombstones are needed.
  for (size_t slot = (hole + 1) & mask; table_[slot] != kNoBlock; slot = (slot + 1) & mask) {
    const size_t home = slot_of(entries_[table_[slot]].key);
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;  // its home lies after the hole
    table_[hole] = table_[slot];
    hole = slot;
  }
  table_[hole] = kNoBlock;
}

}  // namespace quintet
