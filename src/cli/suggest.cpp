// The distance of Levenshtein (1966).
#include "cli/suggest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace quintet {
namespace {

constexpr size_t kLeastShared = 3;  // letters of one name inside of another that mean something

size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  const std::string_view wanted = without_dashes(name);
  std::string best;
  size_t best_edits = std::max<size_t>(1, (wanted.size() + 1) / 3) + 1;  // about one letter in three is wrong
  for (const std::string& candidate : known) {
    const std::string_view letters = without_dashes(candidate);
    const bool shared = std::min(letters.size(), wanted.size()) >= kLeastShared &&
                        (letters.find(wanted) != letters.npos || wanted.find(letters) != wanted.npos);
    const size_t distance = shared ? 1 : edits(wanted, letters);
    if (distance >= best_edits) continue;
    best = candidate;
    best_edits = distance;
  }
  return best;
}

}  // namespace quintet
