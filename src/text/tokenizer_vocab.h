// Strings by id and ids by string: compact tables that are built once and then only read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quintet {

/// Strings back to back in one block.
class StringArena {
 public:
  void reserve(size_t strings, size_t bytes);
  void add(std::string_view text);
  std::string_view operator[](size_t index) const {
    return {bytes_.data() + offsets_[index], offsets_[index + 1] - offsets_[index]};
  }
  size_t size() const { return offsets_.size() - 1; }

 private:
  std::string bytes_;
  std::vector<uint32_t> offsets_{0};
};

/// A hash table from the strings of an arena (which must outlive it and not move) to their indices.
class StringTable {
 public:
  explicit StringTable(const StringArena& arena) : arena_(arena) {}
  void reserve(size_t strings);
  /// Enters the arena's string `index`; false where an equal one is there, which stays.
  bool insert(TokenId index);
  /// The index of an equal string, or -1.
  TokenId find(std::string_view text) const;

 private:
  const StringArena& arena_;
  struct Slot {
    TokenId index = -1;  // -1: free
    uint32_t tag =
        0;  // other bits of the hash than those of the place, so that a string is only touched if it is equal
  };
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

uint64_t hash_bytes(std::string_view text);

}  // namespace quintet
