// Merging: a scan for short words, a heap over a linked list for long ones; both give the same result.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"

namespace quintet {
namespace {

/// Up to here looking for the best pair anew each time is faster than a heap.
constexpr size_t kScanSymbols = 32;

uint64_t pair_of(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t scatter(uint64_t pair) {
  const uint64_t product = pair * 0x9E3779B97F4A7C15;  // golden ratio; the low id is in the low bits, so fold
  return product ^ product >> 32;
}

template <class Merges>
void merge_short(const Merges& merges, std::string_view word, std::vector<Symbol>& symbols) {
  MergeCandidate pairs[kScanSymbols];
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges.find(word, symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i].id >= 0 && (best == count || pairs[i].key < pairs[best].key)) best = i;
    }
    if (best == count) break;
    Symbol& left = symbols[best];
    left.id = pairs[best].id;
    left.bytes += symbols[best + 1].bytes;
    left.chars += symbols[best + 1].chars;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];  // of the last symbol it is never read
    }
    if (best > 0) pairs[best - 1] = merges.find(word, symbols[best - 1], left);
    if (best + 1 < count) pairs[best] = merges.find(word, left, symbols[best + 1]);
  }
  symbols.resize(count);
}

template <class Merges>
void merge_long(const Merges& merges, std::string_view word, std::vector<Symbol>& symbols) {
  constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t key;
    uint32_t left;
    uint32_t bytes;  // of both together: an entry is stale where the pair at `left` has another length
    TokenId id;
  };
  const auto later = [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key > b.key : a.left > b.left;
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(count), next(count);
  for (uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == count ? kNone : i + 1;
  }
  std::vector<Entry> heap;
  heap.reserve(count);
  const auto entry_at = [&](uint32_t left, Entry& entry) {
    const Symbol &a = symbols[left], &b = symbols[next[left]];
    const MergeCandidate candidate = merges.find(word, a, b);
    entry = {candidate.key, left, a.bytes + b.bytes, candidate.id};
    return candidate.id >= 0;
  };
  Entry entry;
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (entry_at(i, entry)) heap.push_back(entry);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](uint32_t left) {
    if (!entry_at(left, entry)) return;
    heap.push_back(entry);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Entry top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.left];
    const uint32_t right = next[top.left];
    if (left.bytes == 0 || right == kNone || left.bytes + symbols[right].bytes != top.bytes) continue;
    left.id = top.id;
    left.bytes = top.bytes;
    left.chars += symbols[right].chars;
    symbols[right].bytes = 0;  // gone
    next[top.left] = next[right];
    if (next[right] != kNone) previous[next[right]] = top.left;
    if (previous[top.left] != kNone) push(previous[top.left]);
    if (next[top.left] != kNone) push(top.left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.bytes == 0; });
}

}  // namespace

void RankedMerges::reserve(size_t merges) {
  slots_.assign(std::bit_ceil(std::max<size_t>(16, merges + merges / 4)), {});
}

bool RankedMerges::insert(TokenId left, TokenId right, uint32_t rank, TokenId merged) {
  const uint64_t pair = pair_of(left, right);
  size_t slot = scatter(pair) & (slots_.size() - 1);
  for (; slots_[slot].pair != UINT64_MAX; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].pair == pair) return false;
  }
  slots_[slot] = {pair, rank, merged};
  return true;
}

MergeCandidate RankedMerges::find(std::string_view, const Symbol& left, const Symbol& right) const {
  if (left.id < 0 || right.id < 0) return {};
  const uint64_t pair = pair_of(left.id, right.id);
  for (size_t slot = scatter(pair) & (slots_.size() - 1); slots_[slot].pair != UINT64_MAX;
       slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].pair == pair) return {slots_[slot].rank, slots_[slot].merged};
  }
  return {};
}

ScoredMerges::ScoredMerges(const StringTable& table, const std::vector<double>& scores,
                           const std::vector<bool>& mergeable, size_t longest_bytes)
    : table_(table), order_(scores.size()), mergeable_(mergeable), longest_bytes_(longest_bytes) {
  QUINTET_CHECK(scores.size() <= kMaxTokens, "{} scores", scores.size());
  std::vector<uint32_t> by_score(scores.size());
  std::iota(by_score.begin(), by_score.end(), 0U);
  std::sort(by_score.begin(), by_score.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  uint32_t order = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && scores[by_score[i]] != scores[by_score[i - 1]]) ++order;
    order_[by_score[i]] = order;
  }
}

MergeCandidate ScoredMerges::find(std::string_view word, const Symbol& left, const Symbol& right) const {
  constexpr uint32_t kMaxChars = 1023;
  if (left.id < 0 || right.id < 0 || left.bytes + right.bytes > longest_bytes_) return {};
  if (left.chars > kMaxChars || right.chars > kMaxChars) return {};
  const TokenId id = table_.find(word.substr(left.begin, left.bytes + right.bytes));
  if (id < 0 || !mergeable_[static_cast<size_t>(id)]) return {};
  const uint64_t key = static_cast<uint64_t>(order_[static_cast<size_t>(id)]) << 42 |
                       static_cast<uint64_t>(kMaxChars - left.chars) << 32 |
                       static_cast<uint64_t>(kMaxChars - right.chars) << 22 | static_cast<uint64_t>(id);
  return {key, id};
}

template <class Merges>
void merge_word(const Merges& merges, std::string_view word, std::vector<Symbol>& symbols) {
  if (symbols.size() <= kScanSymbols) {
    merge_short(merges, word, symbols);
  } else {
    merge_long(merges, word, symbols);
  }
}

template void merge_word(const RankedMerges&, std::string_view, std::vector<Symbol>&);
template void merge_word(const ScoredMerges&, std::string_view, std::vector<Symbol>&);

}  // namespace quintet
