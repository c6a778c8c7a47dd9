// Hash table (open addressing, linear probing) over a vocabulary's strings.
#include "text/tokenizer_vocab.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace quintet {

void StringArena::reserve(size_t strings, size_t bytes) {
  offsets_.reserve(strings + 1);
  bytes_.reserve(bytes);
}

void StringArena::add(std::string_view text) {
  QUINTET_CHECK(bytes_.size() + text.size() <= UINT32_MAX, "a vocabulary of more than 4 GiB");
  bytes_ += text;
  offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
}

uint64_t hash_bytes(std::string_view text) {
  // Multiply and fold, eight bytes at a time (the constants are the fractions of pi and of the golden ratio).
  uint64_t hash = 0x243F6A8885A308D3 ^ text.size();
  const char* data = text.data();
  size_t left = text.size();
  const auto mix = [&](uint64_t word) {
    const auto product = static_cast<unsigned __int128>(hash ^ word) * 0x9E3779B97F4A7C15;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  for (; left >= 8; data += 8, left -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    mix(word);
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, data, left);
    mix(word);
  }
  return hash;
}

void StringTable::reserve(size_t strings) {
  slots_.assign(std::bit_ceil(std::max<size_t>(16, strings + strings / 2)), {});
}

bool StringTable::insert(TokenId index) {
  QUINTET_CHECK(used_ + 1 < slots_.size(), "the table is full");
  const std::string_view text = arena_[static_cast<size_t>(index)];
  const uint64_t hash = hash_bytes(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot].index >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].tag == tag && arena_[static_cast<size_t>(slots_[slot].index)] == text) return false;
  }
  slots_[slot] = {index, tag};
  ++used_;
  return true;
}

TokenId StringTable::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const uint64_t hash = hash_bytes(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t slot = hash & (slots_.size() - 1); slots_[slot].index >= 0;
       slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].tag == tag && arena_[static_cast<size_t>(slots_[slot].index)] == text)
      return slots_[slot].index;
  }
  return -1;
}

}  // namespace quintet
