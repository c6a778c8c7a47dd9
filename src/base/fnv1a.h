// FNV-1a, 64 bits: stable across machines and runs, which std::hash is not. To tell things apart, not against an adversary.
#pragma once

#include <cstdint>
#include <string_view>

namespace quintet {

/// Of `bytes` behind what `hash` is the hash of.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xCBF29CE484222325u) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace quintet
