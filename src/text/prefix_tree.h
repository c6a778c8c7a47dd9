// Which strings of a set does a text begin with: a radix tree.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quintet {

/// A search takes the length of the longest match, whatever the set: every node's children are told apart by
/// one byte. Immutable; safe for many threads.
class PrefixTree {
 public:
  PrefixTree() = default;
  /// Of (string, value) pairs, values from 0; the strings must outlive it. Empty strings are left out; of
  /// equal ones the last value counts.
  explicit PrefixTree(std::vector<std::pair<std::string_view, TokenId>> entries);

  /// Calls visit(length_bytes, value) for every string that `text` begins with, shortest first.
  template <class Visit>
  void each_prefix(std::string_view text, Visit visit) const {
    if (text.empty() || !begins(static_cast<uint8_t>(text[0]))) return;
    size_t node = 0;
    for (size_t at = 0; at < text.size();) {
      const Node& parent = nodes_[node];
      const void* found = std::memchr(label_first_.data() + parent.children, static_cast<uint8_t>(text[at]),
                                      parent.child_count);
      if (found == nullptr) return;
      node = static_cast<size_t>(static_cast<const uint8_t*>(found) - label_first_.data());
      const Node& child = nodes_[node];
      if (!text.substr(at).starts_with(child.label)) return;
      at += child.label.size();
      if (child.value >= 0) visit(at, child.value);
      if (child.child_count == 0) return;
    }
  }
  bool begins(uint8_t byte) const { return begins_[byte]; }
  bool empty() const { return nodes_.size() <= 1; }

 private:
  struct Node {
    std::string_view label;    ///< what the way from the parent adds
    TokenId value = -1;        ///< of the string that ends here, or -1
    uint32_t children = 0;     ///< the first of them; they lie side by side
    uint32_t child_count = 0;  ///< at most 256
  };

  std::vector<Node> nodes_;           // the root first; at most two a string
  std::vector<uint8_t> label_first_;  // by node: the first byte of its label
  std::array<bool, 256> begins_{};
};

}  // namespace quintet
