// Where each block of the cache lies and in which format: what a step's block references are made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/step_view.h"
#include "kv/block_pool.h"

namespace quintet {

/// A place that holds pages: BlockRef::place is its index.
struct KvTier {
  PageClass page;
  int64_t pages = 0;
};

/// Today there is one tier, the device's own memory in the backend's full-precision page class, and every
/// block stays on the page of its own number. A further tier adds a row here, and moves blocks as whole
/// pages.
class Residency {
 public:
  explicit Residency(const KvTier& device);

  BlockRef ref(BlockId block) const { return refs_[block]; }
  /// The slot (StepView::kv_slot) of a token in a block: where a step stores K and V.
  int64_t slot(BlockId block, int32_t offset) const {
    return int64_t{refs_[block].page} * tiers_[refs_[block].place].page.tokens + offset;
  }
  const std::vector<KvTier>& tiers() const { return tiers_; }

 private:
  std::vector<KvTier> tiers_;
  std::vector<BlockRef> refs_;  ///< by block
};

}  // namespace quintet
