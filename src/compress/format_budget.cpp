// Convex hulls and the greedy walk up them.
#include "compress/format_budget.h"

#include <algorithm>

namespace quintet {
namespace {

double gain(const FormatOption& from, const FormatOption& to) {
  return (from.kl - to.kl) / static_cast<double>(to.bytes - from.bytes);
}

}  // namespace

void keep_hull(std::vector<FormatOption>& options) {
  std::stable_sort(options.begin(), options.end(), [](const FormatOption& a, const FormatOption& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.kl < b.kl;
  });
  std::vector<FormatOption> hull;
  for (const FormatOption& option : options) {
    if (!hull.empty() && (option.bytes == hull.back().bytes || option.kl >= hull.back().kl)) continue;
    while (hull.size() >= 2 && gain(hull.back(), option) >= gain(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(option);
  }
  options = std::move(hull);
}

std::vector<size_t> spend_bytes(std::span<const std::vector<FormatOption>> groups, uint64_t bytes) {
  std::vector<size_t> at(groups.size());
  uint64_t left = bytes;
  for (const auto& options : groups) left -= options.front().bytes;
  while (true) {
    size_t best = groups.size();
    double most = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (at[i] + 1 >= groups[i].size()) continue;
      const FormatOption &now = groups[i][at[i]], &next = groups[i][at[i] + 1];
      if (next.bytes - now.bytes <= left && gain(now, next) > most) most = gain(now, next), best = i;
    }
    if (best == groups.size()) return at;
    left -= groups[best][at[best] + 1].bytes - groups[best][at[best]].bytes;
    ++at[best];
  }
}

}  // namespace quintet
