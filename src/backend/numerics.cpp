// The hash of everything that decides bits.
#include "backend/numerics.h"

#include <fmt/format.h>

#include "base/fnv1a.h"

namespace quintet {

uint64_t Numerics::id() const {
  return fnv1a(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", path, k_slices, kv_split, norm_tree, kv_rule, build));
}

}  // namespace quintet
