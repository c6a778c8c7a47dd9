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

/// Finds which strings are prefixes of a text: the strings sorted, narrowed byte by byte.
class PrefixIndex {
 public:
  /// Of (string, value) pairs; the strings must outlive it. Equal strings: the last value counts.
  explicit PrefixIndex(std::vector<std::pair<std::string_view, TokenId>> entries);

  /// Calls visit(length_bytes, value) for every entry that `text` begins with, shortest first.
  template <class Visit>
  void each_prefix(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    const auto first = static_cast<uint8_t>(text[0]);
    size_t low = first_byte_[first], high = first_byte_[first + 1];
    for (size_t depth = 0; low < high;) {
      ++depth;
      if (entries_[low].first.size() == depth) {
        visit(depth, entries_[low].second);
        ++low;
      }
      if (depth == text.size()) return;
      narrow(depth, static_cast<uint8_t>(text[depth]), low, high);
    }
  }
  bool begins(uint8_t byte) const { return first_byte_[byte] < first_byte_[byte + 1]; }
  bool empty() const { return entries_.empty(); }

 private:
  void narrow(size_t depth, uint8_t byte, size_t& low, size_t& high) const;

  std::vector<std::pair<std::string_view, TokenId>> entries_;
  std::vector<uint32_t> first_byte_;  // [257]
};

}  // namespace quintet
