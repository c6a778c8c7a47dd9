// tokenizer.json (Hugging Face tokenizers 0.x) -> TokenizerSpec. What would change ids and is not supported
// is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/tokenizer.h"
#include "text/tokenizer_json_reader.h"
#include "text/tokenizer_json_steps.h"

namespace quintet {
namespace {

using Json = nlohmann::json;
using Kind = TokenizerSpec::Kind;
using TokenType = TokenizerSpec::TokenType;

class Reader {
 public:
  Reader(TokenizerJson file, std::string_view origin)
      : file_(std::move(file)), fields_(*file_.rest, std::string(origin) + ": ") {
    spec_.origin = origin;
  }

  Result<TokenizerSpec> run() {
    TRY(model());
    TRY(vocabulary());
    TRY_ASSIGN(spec_.normalizers, read_normalizers(fields_.member("normalizer"), spec_.precompiled_charsmap));
    TRY_ASSIGN(spec_.pre_tokenizers, read_pre_tokenizers(fields_.member("pre_tokenizer")));
    const bool bytes =
        std::any_of(spec_.pre_tokenizers.begin(), spec_.pre_tokenizers.end(),
                    [](const auto& step) { return step.kind == PreTokenizerStep::Kind::byte_level; });
    if (spec_.kind != Kind::unigram) spec_.kind = bytes ? Kind::byte_bpe : Kind::sentencepiece_bpe;
    if (spec_.kind == Kind::unigram && bytes)
      return fields_.error("pre_tokenizer", "ByteLevel before a Unigram model is not supported");
    TRY_ASSIGN(spec_.decode_strips_space, decoder_strips_space(fields_.member("decoder")));
    TRY(post_processor(fields_.member("post_processor"), 0));
    return std::move(spec_);
  }

 private:
  Status model() {
    const JsonField model = fields_.member("model");
    TRY(model.require_object());
    TRY_ASSIGN(const std::string type,
               model.string_or("type", file_.vocabulary_has_scores ? "Unigram" : "BPE"));
    if (type == "Unigram") {
      spec_.kind = Kind::unigram;
      spec_.fuse_unknown = true;
      if (!file_.vocabulary_has_scores)
        return model.error("vocab", "a Unigram model needs a list of [text, score]");
      const JsonField unknown = model.member("unk_id");
      if (!unknown.is_null()) {
        TRY_ASSIGN(const int64_t id, unknown.integer(0, static_cast<int64_t>(file_.vocabulary.size()) - 1));
        spec_.unk = static_cast<TokenId>(id);
        spec_.emit_unknown = true;
      }
    } else if (type == "BPE") {
      spec_.kind = Kind::sentencepiece_bpe;
      if (file_.vocabulary_has_scores)
        return model.error("vocab", "a BPE model needs an object of texts and ids");
      for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        TRY_ASSIGN(const std::string text, model.string_or(affix, ""));
        if (!text.empty())
          return model.error(affix, fmt::format("'{}' is not supported; allowed is none", text));
      }
      const JsonField dropout = model.member("dropout");
      if (!dropout.is_null() && !(dropout.json().is_number() && dropout.json().get<double>() == 0)) {
        return model.error("dropout", "dropping merges at random is not supported");
      }
      TRY_ASSIGN(spec_.fuse_unknown, model.boolean_or("fuse_unk", false));
      TRY_ASSIGN(spec_.ignore_merges, model.boolean_or("ignore_merges", false));
    } else {
      return model.error("type", fmt::format("'{}' is not supported; supported are BPE and Unigram", type));
    }
    TRY_ASSIGN(spec_.byte_fallback, model.boolean_or("byte_fallback", false));
    spec_.merges = std::move(file_.merges);
    spec_.merge_left_bytes = std::move(file_.merge_left_bytes);
    return {};
  }

  Status vocabulary() {
    const JsonField list = fields_.member("added_tokens");
    TRY_ASSIGN(const auto added_fields, list.elements_or_none());
    for (size_t place = 0; file_.vocabulary_has_scores && place < file_.vocabulary.size(); ++place) {
      file_.vocabulary[place].id = static_cast<int64_t>(place);
    }
    // Every id below the highest one must be taken, so the table cannot be larger than what is written in the
    // file.
    const auto limit = static_cast<int64_t>(file_.vocabulary.size() + added_fields.size());
    int64_t count = 0;
    for (const auto& entry : file_.vocabulary) {
      if (entry.id < 0 || entry.id >= limit) {
        return fields_.error(
            "model.vocab",
            fmt::format("the id of '{}' is {}; of {} tokens the ids must be 0 to {}, each once",
                        entry.text.substr(0, 80), entry.id, limit, limit - 1));
      }
      count = std::max(count, entry.id + 1);
    }
    std::vector<AddedToken> added;
    for (const JsonField& field : added_fields) {
      TRY_ASSIGN(auto token, added_token(field, limit));
      count = std::max<int64_t>(count, token.id + 1);
      added.push_back(std::move(token));
    }
    spec_.tokens.resize(static_cast<size_t>(count));
    spec_.types.assign(static_cast<size_t>(count), TokenType::unused);
    if (file_.vocabulary_has_scores) spec_.scores.assign(static_cast<size_t>(count), 0);
    std::vector<bool> taken(static_cast<size_t>(count));
    for (auto& entry : file_.vocabulary) {
      const auto id = static_cast<size_t>(entry.id);
      if (taken[id]) {
        return fields_.error("model.vocab",
                             fmt::format("'{}' and '{}' have the same id, {}", spec_.tokens[id].substr(0, 80),
                                         entry.text.substr(0, 80), id));
      }
      taken[id] = true;
      spec_.types[id] = TokenType::normal;
      if (file_.vocabulary_has_scores) spec_.scores[id] = entry.score;
      spec_.tokens[id] = std::move(entry.text);
    }
    for (auto& token : added) {
      const auto id = static_cast<size_t>(token.id);
      if (!taken[id]) {
        taken[id] = true;
        spec_.tokens[id] = token.text;
        spec_.types[id] = TokenType::user_defined;
      }
      if (token.special) spec_.types[id] = TokenType::control;
      spec_.added.push_back(std::move(token));
    }
    const auto hole = std::find(taken.begin(), taken.end(), false);
    if (hole != taken.end()) {
      return fields_.error("model.vocab", fmt::format("no token has the id {}, but there are ids up to {}",
                                                      hole - taken.begin(), count - 1));
    }
    return unknown_token();
  }

  /// BPE names its unknown token by its text.
  Status unknown_token() {
    const JsonField field = fields_.member("model").member("unk_token");
    if (spec_.kind == Kind::unigram || field.is_null()) return {};
    TRY_ASSIGN(const std::string text, field.string());
    const auto at = std::find(spec_.tokens.begin(), spec_.tokens.end(), text);
    if (at == spec_.tokens.end())
      return field.error("", fmt::format("'{}' is not in the vocabulary", text.substr(0, 80)));
    spec_.unk = static_cast<TokenId>(at - spec_.tokens.begin());
    spec_.emit_unknown = true;
    return {};
  }

  Result<AddedToken> added_token(const JsonField& field, int64_t limit) {
    AddedToken token;
    TRY(field.require_object());
    TRY_ASSIGN(const int64_t id, field.member("id").integer(0, INT32_MAX));
    if (id >= limit) {
      return field.error("id", fmt::format("found {}; of {} tokens the ids must be 0 to {}, each once", id,
                                           limit, limit - 1));
    }
    token.id = static_cast<TokenId>(id);
    TRY_ASSIGN(token.text, field.member("content").string());
    TRY_ASSIGN(token.special, field.boolean_or("special", false));
    TRY_ASSIGN(token.lstrip, field.boolean_or("lstrip", false));
    TRY_ASSIGN(token.rstrip, field.boolean_or("rstrip", false));
    TRY_ASSIGN(token.single_word, field.boolean_or("single_word", false));
    TRY_ASSIGN(token.normalized, field.boolean_or("normalized", !token.special));
    return token;
  }

  Status post_processor(const JsonField& field, int depth) {
    if (field.is_null()) return {};
    if (depth > 4) return field.error("", "Sequences inside Sequences");
    TRY_ASSIGN(const std::string type, field.member("type").string());
    if (type == "ByteLevel") return {};  // changes offsets, never ids
    if (type == "Sequence") {
      TRY_ASSIGN(const auto processors, field.member("processors").elements());
      for (const JsonField& processor : processors) TRY(post_processor(processor, depth + 1));
      return {};
    }
    if (type == "TemplateProcessing") return template_processing(field);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      TRY_ASSIGN(const auto begin, field.member("cls").elements());
      TRY_ASSIGN(const auto end, field.member("sep").elements());
      if (begin.size() != 2 || end.size() != 2) return field.error("", "cls and sep must be [text, id]");
      TRY(set_frame(begin[1], spec_.bos, spec_.add_bos));
      return set_frame(end[1], spec_.eos, spec_.add_eos);
    }
    return field.error("type", fmt::format("'{}' is not supported", type));
  }

  Status set_frame(const JsonField& id, std::optional<TokenId>& token, bool& add) {
    TRY_ASSIGN(const int64_t value, id.integer(0, static_cast<int64_t>(spec_.tokens.size()) - 1));
    token = static_cast<TokenId>(value);
    add = true;
    return {};
  }

  Status template_processing(const JsonField& field) {
    TRY_ASSIGN(const auto parts, field.member("single").elements());
    bool seen_text = false;
    for (const JsonField& part : parts) {
      TRY(part.require_object());
      if (!part.member("Sequence").is_null()) {
        if (std::exchange(seen_text, true)) return field.error("single", "the text is there twice");
        continue;
      }
      TRY_ASSIGN(const std::string name, part.member("SpecialToken").member("id").string());
      const JsonField ids = field.member("special_tokens").member(name).member("ids");
      TRY_ASSIGN(const auto list, ids.elements());
      bool& add = seen_text ? spec_.add_eos : spec_.add_bos;
      if (list.size() != 1 || add)
        return ids.error("", "more than one token on a side of the text is not supported");
      TRY(set_frame(list[0], seen_text ? spec_.eos : spec_.bos, add));
    }
    return {};
  }

  TokenizerJson file_;
  JsonField fields_;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, std::string_view origin) {
  TRY_ASSIGN(TokenizerJson file, read_tokenizer_json(json, origin));
  return Reader(std::move(file), origin).run();
}

}  // namespace quintet
