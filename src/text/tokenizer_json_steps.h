// The parts of a tokenizer.json that are chains of steps: normalizers, pre-tokenizers, decoders.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quintet {

/// A value of a JSON tree (or null where it is absent) and the path to it, for messages. Borrows the tree.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& json() const { return *value_; }
  bool is_null() const;
  /// Null where it is absent or this is no object.
  JsonField member(std::string_view key) const;

  Status require_object() const;
  Result<std::string> string() const;
  Result<int64_t> integer(int64_t low, int64_t high) const;
  Result<std::vector<JsonField>> elements() const;
  Result<std::vector<JsonField>> elements_or_none() const;                               ///< empty where null
  Result<std::string> string_or(std::string_view key, std::string_view fallback) const;  ///< also where null
  Result<bool> boolean_or(std::string_view key, bool fallback) const;

  /// "origin: path.key: problem".
  Error error(std::string_view key, std::string_view problem) const;

 private:
  Error wrong_kind(std::string_view allowed) const;

  const nlohmann::json* value_;
  std::string path_;
};

/// A Precompiled normalizer's map goes to `charsmap`.
Result<std::vector<NormalizerStep>> read_normalizers(const JsonField& field, std::vector<uint8_t>& charsmap);
Result<std::vector<PreTokenizerStep>> read_pre_tokenizers(const JsonField& field);

/// The decoder takes a space off the beginning of the text. All else that the supported decoders do is
/// implied by the vocabulary's kind.
Result<bool> decoder_strips_space(const JsonField& field);

}  // namespace quintet
