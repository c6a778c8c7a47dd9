// The first pass over a tokenizer.json: its vocabulary and merges as lists, all else as a small JSON tree.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

/// A tokenizer.json cut in two, so that hundreds of thousands of entries do not become JSON values of 100
/// bytes each.
struct TokenizerJson {
  struct Entry {
    std::string text;
    int64_t id = 0;    ///< model.vocab as an object
    double score = 0;  ///< model.vocab as a list: the id is the place
  };
  std::vector<Entry> vocabulary;
  bool vocabulary_has_scores = false;      ///< it was a list
  std::vector<std::string> merges;         ///< "left right"
  std::vector<uint32_t> merge_left_bytes;  ///< of each merge; empty where none was given as a pair
  std::unique_ptr<nlohmann::json> rest;    ///< an object; model has neither vocab nor merges

  TokenizerJson();
  TokenizerJson(TokenizerJson&&) noexcept;
  TokenizerJson& operator=(TokenizerJson&&) noexcept;
  ~TokenizerJson();
};

/// Errors name `origin` and the field or the place of the syntax error.
Result<TokenizerJson> read_tokenizer_json(std::string_view json, std::string_view origin);

}  // namespace quintet
