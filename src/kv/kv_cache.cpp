// Moves blocks between free, held and idle.
#include "kv/kv_cache.h"

#include "base/check.h"

namespace quintet {

KvCache::KvCache(const KvTier& device, uint64_t numerics_id)
    : block_tokens_(device.page.tokens),
      pool_(device.pages),
      index_(device.pages, device.page.tokens, numerics_id),
      residency_(device) {}

BlockId KvCache::allocate() {
  if (pool_.free_blocks() == 0 && index_.idle_blocks() > 0) pool_.drop_reference(index_.evict());
  return pool_.take();
}

void KvCache::hold(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    if (idle(block)) index_.set_used(block);
    pool_.add_reference(block);
  }
}

void KvCache::release_one(BlockId block) {
  QUINTET_CHECK(!idle(block), "block {} is held by nobody", block);
  pool_.drop_reference(block);
  if (idle(block)) index_.set_idle(block);
}

void KvCache::release(std::span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) release_one(blocks[i]);
}

int64_t KvCache::releasable(std::span<const BlockId> blocks) const {
  int64_t count = 0;
  for (BlockId block : blocks) count += pool_.references(block) == (index_.published(block) ? 2 : 1);
  return count;
}

int64_t KvCache::idle_among(std::span<const BlockId> blocks) const {
  int64_t count = 0;
  for (BlockId block : blocks) count += idle(block);
  return count;
}

BlockId KvCache::publish(SpaceId space, BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  QUINTET_CHECK(pool_.references(block) == 1, "block {} has {} holders and is not published", block,
                pool_.references(block));
  const BlockId known = index_.publish(space, parent, tokens, block);
  if (known == block) {
    pool_.add_reference(block);
  } else {
    hold({&known, 1});
    pool_.drop_reference(block);
  }
  return known;
}

}  // namespace quintet
