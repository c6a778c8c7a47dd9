// The hash of everything that decides bits.
#include "backend/numerics.h"

#include <fmt/format.h>

namespace quintet {

uint64_t Numerics::id() const {
  // FNV-1a: stable across machines and runs, which std::hash is not.
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : fmt::format("{}\n{}\n{}\n{}\n{}\n{}", path, k_slices, kv_split, norm_tree, kv_rule, build)) {
    hash ^= c;
    hash *= 0x100000001b3ull;
  }
  return hash;
}

}  // namespace quintet
