// Reading and walking the double array (format: Darts-clone, S. Yata, as SentencePiece stores it).
#include "text/unigram_charsmap.h"

#include <fmt/format.h>

#include "text/unicode.h"

namespace quintet {
namespace {

/// The longest that NFKC makes of a character has 33 bytes; longer ones would let a file blow up every text.
constexpr size_t kMaxMappedBytes = 128;
constexpr size_t kClusterBytes = 6;  // clusters as long as this are taken character by character

bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label(uint32_t unit) { return unit & (0x80000000U | 0xFF); }
uint32_t offset(uint32_t unit) { return unit >> 10 << (unit >> 6 & 8); }

}  // namespace

Result<Charsmap> Charsmap::parse(std::span<const uint8_t> blob) {
  const auto read_u32 = [&](size_t at) {
    return static_cast<uint32_t>(blob[at]) | static_cast<uint32_t>(blob[at + 1]) << 8 |
           static_cast<uint32_t>(blob[at + 2]) << 16 | static_cast<uint32_t>(blob[at + 3]) << 24;
  };
  if (blob.size() < 4) return bad_input(fmt::format("it has {} bytes; at least 4 are needed", blob.size()));
  const uint32_t trie_bytes = read_u32(0);
  if (trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return bad_input(fmt::format("its trie is said to have {} bytes; allowed are 4 to {}, in fours",
                                 trie_bytes, blob.size() - 4));
  }
  Charsmap map;
  map.units_.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(read_u32(at));
  map.texts_.assign(reinterpret_cast<const char*>(blob.data()) + 4 + trie_bytes,
                    blob.size() - 4 - trie_bytes);
  if (!is_valid_utf8(map.texts_)) return bad_input("its texts are not UTF-8");
  if (!map.texts_.empty() && map.texts_.back() != '\0') return bad_input("its texts do not end in NUL");
  return map;
}

bool Charsmap::transform(std::string_view chunk, std::string_view& mapped) const {
  size_t node = offset(units_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) return false;
    const uint32_t unit = units_[node];
    if (label(unit) != byte) return false;
    node ^= offset(unit);
    if (node >= units_.size()) return false;
    if (!has_leaf(unit)) continue;
    const uint32_t text = value(units_[node]);
    if (text >= texts_.size() || (static_cast<uint8_t>(texts_[text]) & 0xC0) == 0x80) return false;
    // Not searched to its end: that could be as far as the file is long, for every character.
    const std::string_view near = std::string_view(texts_).substr(text, kMaxMappedBytes + 1);
    const size_t end = near.find('\0');
    if (end == std::string_view::npos) return false;
    mapped = near.substr(0, end);
    return true;
  }
  return false;
}

std::string Charsmap::run(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  std::string_view mapped;
  size_t begin = 0;
  for (const uint32_t end : grapheme_ends(text)) {
    const std::string_view cluster = text.substr(begin, end - begin);
    begin = end;
    if (cluster.size() < kClusterBytes && transform(cluster, mapped)) {
      out += mapped;
      continue;
    }
    for (size_t at = 0; at < cluster.size();) {
      const std::string_view character = cluster.substr(at, decode_utf8(cluster, at).bytes);
      out += transform(character, mapped) ? mapped : character;
      at += character.size();
    }
  }
  return out;
}

}  // namespace quintet
