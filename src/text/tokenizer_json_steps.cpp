// Normalizers, pre-tokenizers and decoders of tokenizer.json; kinds that are not supported are refused by
// name.
#include "text/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace quintet {
namespace {

using Json = nlohmann::json;

constexpr int kMaxNesting = 8;

const Json& null_json() {
  static const Json null;
  return null;
}

/// RFC 4648, with padding; nothing where it is malformed.
std::optional<std::vector<uint8_t>> decode_base64(std::string_view text) {
  std::vector<uint8_t> out;
  out.reserve(text.size() / 4 * 3);
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else if (i < text.size() - padding) {
      return std::nullopt;
    }
    bits = bits << 6 | value;
    if (i % 4 == 3) {
      for (int shift = 16; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(bits >> shift));
      bits = 0;
    }
  }
  out.resize(out.size() - padding);
  return out;
}

/// {"String": "..."} or {"Regex": "..."}.
Status read_pattern(const JsonField& field, std::string& pattern, bool& regex) {
  regex = !field.member("Regex").is_null();
  TRY_ASSIGN(pattern, field.member(regex ? "Regex" : "String").string());
  return {};
}

Status add_normalizers(const JsonField& field, int depth, std::vector<NormalizerStep>& steps,
                       std::vector<uint8_t>& charsmap) {
  using Kind = NormalizerStep::Kind;
  if (field.is_null()) return {};
  if (depth > kMaxNesting) return field.error("", "Sequences inside Sequences, too deep");
  TRY_ASSIGN(const std::string type, field.member("type").string());
  if (type == "Sequence") {
    TRY_ASSIGN(const auto parts, field.member("normalizers").elements());
    for (const JsonField& part : parts) TRY(add_normalizers(part, depth + 1, steps, charsmap));
    return {};
  }
  NormalizerStep step;
  if (type == "NFC") {
    step.kind = Kind::nfc;
  } else if (type == "NFD") {
    step.kind = Kind::nfd;
  } else if (type == "NFKC") {
    step.kind = Kind::nfkc;
  } else if (type == "NFKD") {
    step.kind = Kind::nfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::lowercase;
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    TRY_ASSIGN(step.left, field.boolean_or("strip_left", true));
    TRY_ASSIGN(step.right, field.boolean_or("strip_right", true));
  } else if (type == "Prepend") {
    step.kind = Kind::prepend;
    TRY_ASSIGN(step.content, field.member("prepend").string());
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    TRY(read_pattern(field.member("pattern"), step.pattern, step.regex));
    TRY_ASSIGN(step.content, field.member("content").string());
  } else if (type == "Precompiled") {
    step.kind = Kind::charsmap;
    if (!charsmap.empty()) return field.error("type", "a second Precompiled is not supported");
    TRY_ASSIGN(const std::string text, field.member("precompiled_charsmap").string());
    auto bytes = decode_base64(text);
    if (!bytes) return field.error("precompiled_charsmap", "it is not base64");
    charsmap = std::move(*bytes);
  } else {
    return field.error("type", fmt::format("the normalizer '{}' is not supported", type.substr(0, 80)));
  }
  steps.push_back(std::move(step));
  return {};
}

Result<PreTokenizerStep::Behavior> read_behavior(const JsonField& field) {
  using Behavior = PreTokenizerStep::Behavior;
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::removed},
      {"Isolated", Behavior::isolated},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous}};
  TRY_ASSIGN(const std::string name, field.string_or("behavior", "Isolated"));
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return field.error("behavior",
                     fmt::format("'{}' is not known; known are Removed, Isolated, MergedWithPrevious, "
                                 "MergedWithNext and Contiguous",
                                 name.substr(0, 80)));
}

Status read_metaspace(const JsonField& field, PreTokenizerStep& step) {
  using Prepend = PreTokenizerStep::Prepend;
  step.kind = PreTokenizerStep::Kind::metaspace;
  TRY_ASSIGN(step.pattern, field.string_or("replacement", "▁"));
  TRY_ASSIGN(const bool prefix, field.boolean_or("add_prefix_space", true));  // of files before 0.15
  TRY_ASSIGN(const std::string scheme, field.string_or("prepend_scheme", prefix ? "always" : "never"));
  if (scheme == "always") {
    step.prepend = Prepend::always;
  } else if (scheme == "first") {
    step.prepend = Prepend::first;
  } else if (scheme == "never") {
    step.prepend = Prepend::never;
  } else {
    return field.error("prepend_scheme", fmt::format("'{}' is not known; known are always, first and never",
                                                     scheme.substr(0, 80)));
  }
  TRY_ASSIGN(step.split_words, field.boolean_or("split", true));
  return {};
}

Status add_pre_tokenizers(const JsonField& field, int depth, std::vector<PreTokenizerStep>& steps) {
  using Kind = PreTokenizerStep::Kind;
  if (field.is_null()) return {};
  if (depth > kMaxNesting) return field.error("", "Sequences inside Sequences, too deep");
  TRY_ASSIGN(const std::string type, field.member("type").string());
  if (type == "Sequence") {
    TRY_ASSIGN(const auto parts, field.member("pretokenizers").elements());
    for (const JsonField& part : parts) TRY(add_pre_tokenizers(part, depth + 1, steps));
    return {};
  }
  PreTokenizerStep step;
  if (type == "ByteLevel") {
    step.kind = Kind::byte_level;
    TRY_ASSIGN(step.add_prefix_space, field.boolean_or("add_prefix_space", true));
    TRY_ASSIGN(step.use_regex, field.boolean_or("use_regex", true));
  } else if (type == "Split") {
    step.kind = Kind::split;
    TRY(read_pattern(field.member("pattern"), step.pattern, step.regex));
    TRY_ASSIGN(step.behavior, read_behavior(field));
    TRY_ASSIGN(step.invert, field.boolean_or("invert", false));
  } else if (type == "Digits") {
    step.kind = Kind::digits;
    TRY_ASSIGN(step.individual, field.boolean_or("individual_digits", false));
  } else if (type == "Punctuation") {
    step.kind = Kind::punctuation;
    TRY_ASSIGN(step.behavior, read_behavior(field));
  } else if (type == "Metaspace") {
    TRY(read_metaspace(field, step));
  } else if (type == "Whitespace") {
    step.kind = Kind::whitespace;
  } else if (type == "WhitespaceSplit") {
    step.kind = Kind::whitespace_split;
  } else {
    return field.error("type", fmt::format("the pre-tokenizer '{}' is not supported", type.substr(0, 80)));
  }
  steps.push_back(std::move(step));
  return {};
}

Result<bool> strips_space(const JsonField& field, int depth) {
  if (field.is_null()) return false;
  if (depth > kMaxNesting) return field.error("", "Sequences inside Sequences, too deep");
  TRY_ASSIGN(const std::string type, field.member("type").string());
  if (type == "Sequence") {
    TRY_ASSIGN(const auto parts, field.member("decoders").elements());
    bool strips = false;
    for (const JsonField& part : parts) {
      TRY_ASSIGN(const bool one, strips_space(part, depth + 1));
      strips = strips || one;
    }
    return strips;
  }
  if (type == "Strip") {
    TRY_ASSIGN(const std::string content, field.member("content").string());
    TRY_ASSIGN(const int64_t start, field.member("start").integer(0, 1));
    TRY(field.member("stop").integer(0, 0));
    if (content != " ") return field.error("content", "allowed is a space");
    return start == 1;
  }
  if (type == "Metaspace") {
    PreTokenizerStep step;
    TRY(read_metaspace(field, step));
    return step.prepend != PreTokenizerStep::Prepend::never;
  }
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse" || type == "Replace") return false;
  return field.error("type", fmt::format("the decoder '{}' is not supported", type.substr(0, 80)));
}

}  // namespace

bool JsonField::is_null() const { return value_->is_null(); }

JsonField JsonField::member(std::string_view key) const {
  std::string path = fmt::format("{}{}{}", path_, path_.ends_with(": ") ? "" : ".", key);
  if (!value_->is_object()) return {null_json(), std::move(path)};
  const auto at = value_->find(key);
  return {at == value_->end() ? null_json() : *at, std::move(path)};
}

Error JsonField::error(std::string_view key, std::string_view problem) const {
  return bad_input(
      fmt::format("{}{}{}: {}", path_, key.empty() || path_.ends_with(": ") ? "" : ".", key, problem));
}

Error JsonField::wrong_kind(std::string_view allowed) const {
  return error("", fmt::format("found {}; allowed is {}", value_->is_null() ? "nothing" : value_->type_name(),
                               allowed));
}

Status JsonField::require_object() const {
  if (!value_->is_object()) return wrong_kind("an object");
  return {};
}

Result<std::string> JsonField::string() const {
  if (!value_->is_string()) return wrong_kind("a string");
  return value_->get<std::string>();
}

Result<int64_t> JsonField::integer(int64_t low, int64_t high) const {
  if (value_->is_number_integer()) {
    const auto value = value_->get<int64_t>();
    if (value >= low && value <= high) return value;
    return error("", fmt::format("found {}; allowed are {} to {}", value, low, high));
  }
  return wrong_kind("a whole number");
}

Result<std::vector<JsonField>> JsonField::elements() const {
  if (!value_->is_array()) return wrong_kind("a list");
  std::vector<JsonField> out;
  out.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) out.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
  return out;
}

Result<std::vector<JsonField>> JsonField::elements_or_none() const {
  if (value_->is_null()) return std::vector<JsonField>();
  return elements();
}

Result<std::string> JsonField::string_or(std::string_view key, std::string_view fallback) const {
  const JsonField field = member(key);
  if (field.is_null()) return std::string(fallback);
  return field.string();
}

Result<bool> JsonField::boolean_or(std::string_view key, bool fallback) const {
  const JsonField field = member(key);
  if (field.is_null()) return fallback;
  if (!field.value_->is_boolean()) return field.wrong_kind("true or false");
  return field.value_->get<bool>();
}

Result<std::vector<NormalizerStep>> read_normalizers(const JsonField& field, std::vector<uint8_t>& charsmap) {
  std::vector<NormalizerStep> steps;
  TRY(add_normalizers(field, 0, steps, charsmap));
  return steps;
}

Result<std::vector<PreTokenizerStep>> read_pre_tokenizers(const JsonField& field) {
  std::vector<PreTokenizerStep> steps;
  TRY(add_pre_tokenizers(field, 0, steps));
  return steps;
}

Result<bool> decoder_strips_space(const JsonField& field) { return strips_space(field, 0); }

}  // namespace quintet
