// The first placement of every block.
#include "kv/residency.h"

namespace quintet {

Residency::Residency(const KvTier& device) : tiers_{device} {
  refs_.resize(static_cast<size_t>(device.pages));
  for (size_t block = 0; block < refs_.size(); ++block)
    refs_[block] = {.page = static_cast<uint32_t>(block), .format = device.page.format, .place = 0};
}

}  // namespace quintet
