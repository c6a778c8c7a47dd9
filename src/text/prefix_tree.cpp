// Builds the tree level by level, so that the children of a node lie side by side.
#include "text/prefix_tree.h"

#include <algorithm>
#include <cstddef>

namespace quintet {

PrefixTree::PrefixTree(std::vector<std::pair<std::string_view, TokenId>> entries) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });

  struct Range {  // the entries below a node, sorted; `depth` bytes of each are spoken for
    size_t low, high, depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};  // by node
  nodes_.emplace_back();
  label_first_.push_back(0);
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [low, high, depth] = ranges[node];
    while (low < high && entries[low].first.size() == depth) nodes_[node].value = entries[low++].second;
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (low < high) {
      const std::string_view first = entries[low].first;
      const auto byte = static_cast<uint8_t>(first[depth]);
      const auto end = std::partition_point(
          entries.begin() + static_cast<std::ptrdiff_t>(low),
          entries.begin() + static_cast<std::ptrdiff_t>(high),
          [&, depth = depth](const auto& entry) { return static_cast<uint8_t>(entry.first[depth]) == byte; });
      const auto next = static_cast<size_t>(end - entries.begin());
      // Sorted: what the first and the last have in common, all have.
      const std::string_view last = entries[next - 1].first;
      size_t common = depth + 1;
      while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
      nodes_.push_back({.label = first.substr(depth, common - depth)});
      label_first_.push_back(byte);
      ranges.push_back({low, next, common});
      ++nodes_[node].child_count;
      if (node == 0) begins_[byte] = true;
      low = next;
    }
  }
  nodes_.shrink_to_fit();
  label_first_.shrink_to_fit();
}

}  // namespace quintet
