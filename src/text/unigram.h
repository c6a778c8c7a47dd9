// Unigram segmentation: the best path through a lattice of tokens (Kudo, "Subword Regularization", ACL 2018).
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/prefix_tree.h"

namespace quintet {

/// Immutable; safe for many threads.
class Unigram {
 public:
  /// `pieces`: (text, id) of the tokens that may be used; the texts must outlive this. `scores` by id.
  Unigram(std::vector<std::pair<std::string_view, TokenId>> pieces, const std::vector<double>& scores);

  /// A token, or a run of unknown text (-1), and where it lies.
  struct Piece {
    TokenId id = -1;
    size_t begin = 0, end = 0;
  };
  /// The best segmentation of valid UTF-8, neighbouring unknown characters as one piece. Time: text x longest
  /// token.
  void segment(std::string_view text, std::vector<Piece>& out) const;

 private:
  PrefixTree index_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
};

}  // namespace quintet
