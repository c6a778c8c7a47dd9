// The table of all filters.
#include "text/jinja/registry.h"

#include <algorithm>
#include <vector>

#include "text/jinja/filters.h"

namespace quintet::jinja {
namespace {

const std::vector<FilterEntry>& filters() {
  static const std::vector<FilterEntry> all = [] {
    std::vector<FilterEntry> entries;
    for (auto group : {text_filters(), value_filters(), sequence_filters()}) {
      entries.insert(entries.end(), group.begin(), group.end());
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }();
  return all;
}

}  // namespace

int find_filter(std::string_view name) {
  const auto& all = filters();
  auto at = std::lower_bound(all.begin(), all.end(), name,
                             [](const auto& e, std::string_view n) { return e.name < n; });
  return at != all.end() && at->name == name ? static_cast<int>(at - all.begin()) : -1;
}

FilterFunction filter_function(int id) { return filters()[static_cast<size_t>(id)].function; }

}  // namespace quintet::jinja
