// Viterbi over byte positions, in the order and with the tie rule of Hugging Face tokenizers.
#include "text/unigram.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "text/unicode.h"

namespace quintet {
namespace {

constexpr double kUnknownPenalty = 10;  // SentencePiece's kUnkPenalty, below the worst score

}  // namespace

Unigram::Unigram(std::vector<std::pair<std::string_view, TokenId>> pieces, const std::vector<double>& scores)
    : index_(std::move(pieces)), scores_(scores) {
  const auto worst = std::min_element(scores_.begin(), scores_.end());
  unknown_score_ = (worst == scores_.end() ? 0 : *worst) - kUnknownPenalty;
}

void Unigram::segment(std::string_view text, std::vector<Piece>& out) const {
  constexpr size_t kUnreached = SIZE_MAX;
  struct Node {  // the best path that ends here
    double score = 0;
    size_t from = kUnreached;
    TokenId id = -1;
  };
  std::vector<Node> nodes(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const double here = nodes[at].score;
    const size_t character = decode_utf8(text, at).bytes;
    bool has_single = false;
    const auto reach = [&](size_t bytes, double score, TokenId id) {
      Node& node = nodes[at + bytes];
      if (node.from == kUnreached || score > node.score) node = {score, at, id};
    };
    index_.each_prefix(text.substr(at), [&](size_t bytes, TokenId id) {
      reach(bytes, here + scores_[static_cast<size_t>(id)], id);
      has_single = has_single || bytes == character;
    });
    if (!has_single) reach(character, here + unknown_score_, -1);
    at += character;
  }
  const size_t first = out.size();
  for (size_t end = text.size(); end > 0;) {
    const Node& node = nodes[end];
    if (node.id < 0 && out.size() > first && out.back().id < 0) {
      out.back().begin = node.from;
    } else {
      out.push_back({node.id, node.from, end});
    }
    end = node.from;
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace quintet
